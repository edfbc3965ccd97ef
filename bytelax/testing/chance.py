"""Integrates all chance out of a program, exactly."""

import contextlib
from collections.abc import Callable, Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from bytelax.decode import sampling

NARROW = 5e-7  # stretches of [0, 1) below this are rounding; their neighbours take them
_PER_KEY = 8  # most numbers drawn from one key
# Compiling is most of the time, and programs with callbacks are in no cache.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Chance:
    """Every outcome of a program, with its probability.

    The program is a batched function whose chance comes from `sampling.row_uniforms` and is used in
    `sampling.sample` and `sampling.happens` alone, each called on the module and on whole batches
    (leading axis: rows, or each row several times), under jit, scan or while. Those two cut [0, 1)
    at edges that depend on nothing but what was drawn before, so a run shows the edges of each
    number it used: the row is split there, and the parts run again, until none of the numbers of a
    part meets an edge inside it. The functions run are the real ones; only where the numbers come
    from is replaced. A number is known by its key, so a key that is used twice gives the same
    numbers twice.

    Every run takes other points of the same stretches, and each outcome is confirmed by a second
    run: a number that is used in another way is noticed.

    Args:
      program: from a pytree of arrays to (outcome, rest), both pytrees of arrays; all have the rows
        as leading axis. `rest` comes along with the outcome and may differ between two runs.
      rows: rows of one run. Programs are compiled for this number.
    """

    def __init__(self, program: Callable, rows: int = 512):
        # Traced under another name than the caller's, so that no trace without the probes is met.
        self._run = jax.jit(lambda batch: program(batch), compiler_options=QUICK)
        self._rows = rows
        self._random = np.random.default_rng(0)
        self._probe = None

    def outcomes(self, batch) -> Iterator[tuple]:
        """Yields (outcome, rest, row of `batch`, probability given the row), many rows at a time.

        Outcomes of a row may come more than once; their probabilities sum to 1 in each row.

        Raises:
          AssertionError: chance that this class cannot follow.
        """
        many = jax.tree.leaves(batch)[0].shape[0]
        parts = [(np.arange(many), np.zeros((many, 0)), np.ones((many, 0)))]
        unsure = 0.0
        while parts:
            row, low, high = parts.pop()
            if len(row) > self._rows:
                for half in (slice(self._rows, None), slice(None, self._rows)):
                    parts.append((row[half], low[half], high[half]))
                continue
            chunk = _rows(batch, np.pad(row, (0, self._rows - len(row)), mode="edge"))
            outcome, rest, low, high, records = self._observe(chunk, low, high, len(row))
            whole, pieces = _split(row, low, high, records)
            if len(pieces[0]):
                parts.append(pieces)
            if whole.any():
                again, *_ = self._observe(chunk, low, high, len(row))
                size = np.prod(high - low, axis=1)
                unsure += size[whole & ~_same(outcome, again)].sum()
                yield _rows(outcome, whole), _rows(rest, whole), row[whole], size[whole]
        assert unsure < 1e-6 * many, "an outcome depends on a number in an unknown way"

    def _observe(self, chunk, low, high, many):
        """Runs once; the outcome of the first `many` rows, and how their numbers were used."""
        while True:
            self._probe = _Probe(low, high, self._rows, self._random)
            with self._probed():
                outcome, rest = jax.block_until_ready(self._run(chunk))
            if self._probe.numbers_differ():  # else a number could be taken for another
                break
        assert not self._probe.strangers, "a number that row_uniforms did not give"
        outcome, rest = (_rows(part, slice(many)) for part in (outcome, rest))
        records = [(slot[:many], edges[:many]) for slot, edges in self._probe.records]
        return outcome, rest, self._probe.low[:many], self._probe.high[:many], records

    @contextlib.contextmanager
    def _probed(self):
        sample, happens = sampling.sample, sampling.happens

        def row_uniforms(keys, count):
            shape = jax.ShapeDtypeStruct((keys.shape[0], count), jnp.float32)
            give = lambda data: self._probe.give(np.asarray(data), count)  # noqa: E731
            return io_callback(give, shape, jax.random.key_data(keys), ordered=True)

        def watched_sample(log_probs, uniform):
            see = lambda *seen: self._probe.see_sample(*map(np.asarray, seen))  # noqa: E731
            io_callback(see, None, log_probs, uniform, ordered=True)
            return sample(log_probs, uniform)

        def watched_happens(probability, uniform):
            see = lambda *seen: self._probe.see_happens(*map(np.asarray, seen))  # noqa: E731
            probability = jnp.broadcast_to(probability, uniform.shape)
            io_callback(see, None, probability, uniform, ordered=True)
            return happens(probability, uniform)

        with mock.patch.multiple(
            sampling, row_uniforms=row_uniforms, sample=watched_sample, happens=watched_happens
        ):
            yield


def _rows(tree, which):
    return jax.tree.map(lambda x: np.asarray(x)[which], tree)


class _Probe:
    """Gives one run its numbers, and sees where they go.

    A slot is a number of a key: `_PER_KEY` slots for each call of `row_uniforms`, of which a call
    with a key met before in that row uses the earlier ones.
    """

    def __init__(self, low, high, rows, random):
        self.low, self.high = (
            np.concatenate([x, x[:1].repeat(rows - len(x), 0)]) for x in (low, high)
        )
        self.records = []  # (slot i[rows, M], edges f[rows, M, T])
        self.strangers = False
        self._random = random
        self._keys = []
        self._numbers = np.zeros((rows, 0), np.float32)
        self._given = np.zeros((rows, 0), bool)

    def give(self, key, count):
        copies = len(key) // len(self._numbers)
        if copies > 1:  # a batch in which each row stands several times, one beside the other
            parts = [self.give(key[copy::copies], count) for copy in range(copies)]
            return np.stack(parts, axis=1).reshape(len(key), count)
        assert count <= _PER_KEY, f"at most {_PER_KEY} numbers a key, not {count}"
        self._keys.append(key)
        call = len(self._keys) - 1
        self._grow((call + 1) * _PER_KEY)
        first = np.stack([(key == old).all(1) for old in self._keys]).argmax(0)
        slot = first[:, None] * _PER_KEY + np.arange(count)
        np.put_along_axis(self._given, slot, True, axis=1)
        return np.take_along_axis(self._numbers, slot, axis=1)

    def see_sample(self, log_probs, uniform):
        steps = np.exp(log_probs.astype(np.float64)).cumsum(-1)
        with np.errstate(invalid="ignore"):
            self._see(steps / steps[..., -1:], uniform)

    def see_happens(self, probability, uniform):
        self._see(probability[..., None].astype(np.float64), uniform)

    def numbers_differ(self):
        numbers = np.sort(np.where(self._given, self._numbers, -np.arange(self._given.shape[1])))
        return (np.diff(numbers, axis=1) != 0).all()

    def _see(self, edges, uniform):
        rows = len(self._numbers)
        uniform, edges = uniform.reshape(rows, -1), edges.reshape(rows, -1, edges.shape[-1])
        same = (uniform[..., None] == self._numbers[:, None]) & self._given[:, None]
        self.strangers |= not same.any(-1).all()
        self.records.append((same.argmax(-1), edges))

    def _grow(self, size):
        rows, before = self._numbers.shape
        if size > self.low.shape[1]:
            more = ((0, 0), (0, size - self.low.shape[1]))
            self.low = np.pad(self.low, more)
            self.high = np.pad(self.high, more, constant_values=1)
        at = slice(before, size)
        share = self._random.uniform(0.25, 0.75, (rows, size - before))
        numbers = self.low[:, at] + (self.high - self.low)[:, at] * share
        self._numbers = np.concatenate([self._numbers, numbers.astype(np.float32)], axis=1)
        self._given = np.pad(self._given, ((0, 0), (0, size - before)))


def _split(row, low, high, records):
    """bool[n]: rows that no edge cuts; and the pieces of the others, at the first number cut."""
    whole = np.ones(len(row), bool)
    pieces = [(row[:0], low[:0], high[:0])]
    for slots, edges in records:
        for m in range(slots.shape[1]):
            slot = slots[:, m]
            at = np.arange(len(row)), slot
            inside = _inside(edges[:, m], low[at], high[at])
            cut = whole & np.isfinite(inside).any(1)
            whole &= ~cut
            if cut.any():
                pieces.append(_cut(row[cut], low[cut], high[cut], slot[cut], inside[cut]))
    return whole, tuple(np.concatenate(part) for part in zip(*pieces, strict=True))


def _inside(edges, low, high):
    """f[n, T]: the edges between `low` and `high` in order, then inf."""
    with np.errstate(invalid="ignore"):
        edges = np.where(
            (edges > low[:, None] + NARROW) & (edges < high[:, None] - NARROW), edges, np.inf
        )
        edges = np.sort(edges, axis=1)
        apart = np.diff(edges, axis=1, prepend=-1) > NARROW
    return np.sort(np.where(apart, edges, np.inf), axis=1)


def _cut(row, low, high, slot, edges):
    count = np.isfinite(edges).sum(1) + 1
    at = np.arange(len(row)), slot
    begins = np.concatenate([low[at][:, None], edges], axis=1)
    ends = np.concatenate([edges, np.full((len(row), 1), np.inf)], axis=1)
    ends = np.where(np.isfinite(ends), ends, high[at][:, None])
    real = np.arange(begins.shape[1]) < count[:, None]
    source = np.repeat(np.arange(len(row)), count)
    low, high = low[source], high[source]
    at = np.arange(len(source)), slot[source]
    low[at], high[at] = begins[real], ends[real]
    return row[source], low, high


def _same(one, other):
    """bool[n]: rows in which two outcomes agree."""
    equal = [
        (a == b).reshape(len(a), -1).all(1)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    ]
    return np.all(equal, axis=0)
