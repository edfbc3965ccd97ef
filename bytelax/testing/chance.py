"""Enumerates all outcomes of a random program, with their exact probabilities."""

import functools
from collections.abc import Callable, Iterator
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from bytelax.compiling import own_jit
from bytelax.decode import sampling

NARROW = 5e-7  # intervals below this width are rounding errors; their neighbours absorb them
_SPACING = 1e-6  # several times the spacing of float32 below 1


class Chance:
    """Enumerates every outcome of a program, with its probability.

    The program is a batched function. All its random numbers come from `sampling.row_uniforms`, and
    it uses them only in `sampling.sample` and `sampling.happens`, on whole batches (leading axis:
    rows, or each row several times), under jit, scan or while. Both functions compare a number with
    edges in [0, 1) that depend only on numbers drawn before. A run records the edges of each number
    it used. The row is split there, and the parts run again, until no number of a part has an edge
    inside its interval. The functions that run are the real ones; only the source of the random
    numbers is replaced. A number is identified by its key, so a key that is used twice gives the
    same numbers twice.

    A second run confirms each outcome, with every number near the other end of its interval. So a
    number that is used in any other way is detected.

    Args:
      program: function from a pytree of arrays to (outcome, rest), both pytrees of arrays; all have
        the rows as their leading axis. `rest` is returned with the outcome and may differ between
        runs.
      rows: number of rows per run, for which the program is compiled.
    """

    def __init__(self, program: Callable, rows: int = 512):
        # A new function, so that jit cannot reuse a trace of `program` without the probes.
        self._run = own_jit(lambda batch: program(batch))
        self._rows = rows
        self._random = np.random.default_rng(0)
        self._probe: _Probe  # of the run in progress
        self._slots: dict[bytes, list[int]] = {}

    def outcomes(self, batch) -> Iterator[tuple]:
        """Yields (outcome, rest, row of `batch`, probability given the row), many rows at a time.

        An outcome of a row may occur several times. The probabilities of each row sum to 1.

        Raises:
          AssertionError: the program uses random numbers in a way that this class cannot follow.
        """
        many = jax.tree.leaves(batch)[0].shape[0]
        parts = [(np.arange(many), np.zeros((many, 0)), np.ones((many, 0)))]
        unsure = 0.0
        while parts:
            row, low, high = parts.pop()
            while parts and len(row) + len(parts[-1][0]) <= self._rows:
                row, low, high = _joined((row, low, high), parts.pop())
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
                again, *_ = self._observe(chunk, low, high, len(row), ~self._probe.upper)
                size = np.prod(high - low, axis=1)
                unsure += size[whole & ~_same(outcome, again)].sum()
                yield _rows(outcome, whole), _rows(rest, whole), row[whole], size[whole]
        assert unsure < 1e-6 * many, (
            "an outcome depends on a random number that was used otherwise than in `decode.sample` "
            "or `decode.happens`"
        )

    def _observe(self, chunk, low, high, many, upper=None):
        """Runs the program once; returns outcomes, rests, intervals and uses of numbers.

        `upper` bool[rows, slots]: which numbers lie near the upper ends of their intervals; random
        by default.
        """
        while True:
            self._probe = _Probe(low, high, self._rows, self._random, self._slots, upper)
            with self._probed():
                outcome, rest = jax.block_until_ready(self._run(chunk))
            if self._probe.numbers_differ():  # otherwise they could not be distinguished
                break
        assert not self._probe.strangers, "a number that row_uniforms did not give"
        outcome, rest = (_rows(part, slice(many)) for part in (outcome, rest))
        records = [(slot[:many], edges[:many]) for slot, edges in self._probe.records]
        return outcome, rest, self._probe.low[:many], self._probe.high[:many], records

    def _probed(self):
        """The program is traced, and called back from, with the probes in place."""
        return mock.patch.multiple(
            sampling,
            row_uniforms=self._row_uniforms,
            _sample=functools.partial(self._watched_sample, sampling._sample),
            _happens=functools.partial(self._watched_happens, sampling._happens),
        )

    def _row_uniforms(self, keys, count):
        shape = jax.ShapeDtypeStruct((keys.shape[0], count), jnp.float32)
        give = lambda data: self._probe.give(np.asarray(data), count)  # noqa: E731
        return io_callback(give, shape, jax.random.key_data(keys), ordered=True)

    def _watched_sample(self, sample, log_probs, uniform):
        see = lambda *seen: self._probe.see_sample(*map(np.asarray, seen))  # noqa: E731
        io_callback(see, None, log_probs, uniform, ordered=True)
        return sample(log_probs, uniform)

    def _watched_happens(self, happens, probability, uniform):
        see = lambda *seen: self._probe.see_happens(*map(np.asarray, seen))  # noqa: E731
        probability = jnp.broadcast_to(probability, uniform.shape)
        io_callback(see, None, probability, uniform, ordered=True)
        return happens(probability, uniform)


def _rows(tree, which):
    return jax.tree.map(lambda x: np.asarray(x)[which], tree)


class _Probe:
    """Supplies the random numbers of one run, and records what they are compared with.

    A slot is one number of a key. Slots are found by the key, not by the order of calls: how often
    an inner loop draws depends on the other rows of the run.
    """

    def __init__(self, low, high, rows, random, slots, upper):
        self.low, self.high = (
            np.concatenate([x, x[:1].repeat(rows - len(x), 0)]) for x in (low, high)
        )
        self.records = []  # (slot i[rows, M], edges f[rows, M, T])
        self.strangers = False
        self.upper = np.zeros((rows, 0), bool)
        self._fixed = self.upper if upper is None else upper
        self._random = random
        self._slots = slots  # of each key that any run used
        self._numbers = np.zeros((rows, 0), np.float32)
        self._given = np.zeros((rows, 0), bool)

    def give(self, key, count):
        copies = len(key) // len(self._numbers)
        if copies > 1:  # a batch that holds each row several times, side by side
            parts = [self.give(key[copy::copies], count) for copy in range(copies)]
            return np.stack(parts, axis=1).reshape(len(key), count)
        distinct, which = np.unique(key, axis=0, return_inverse=True)
        for slots in (self._slots.setdefault(one.tobytes(), []) for one in distinct):
            size = sum(map(len, self._slots.values()))
            slots.extend(range(size, size + count - len(slots)))
        self._grow(sum(map(len, self._slots.values())))
        own = [self._slots[one.tobytes()][:count] for one in distinct]
        slot = np.array(own, np.int64)[which.ravel()]
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
        before = self._numbers.shape[1]
        if size > self.low.shape[1]:
            self.low, self.high = _padded(self.low, size, 0.0), _padded(self.high, size, 1.0)
        at = slice(before, size)
        width = (self.high - self.low)[:, at]
        least = np.clip(_SPACING / np.maximum(width, _SPACING), 0.02, 0.25)
        share = least + (0.3 - least) * self._random.uniform(size=width.shape)
        upper = self._random.uniform(size=width.shape) < 0.5
        fixed = self._fixed[:, at]
        upper[:, : fixed.shape[1]] = fixed
        self.upper = np.concatenate([self.upper, upper], axis=1)
        numbers = self.low[:, at] + width * np.where(upper, 1 - share, share)
        self._numbers = np.concatenate([self._numbers, numbers.astype(np.float32)], axis=1)
        self._given = np.pad(self._given, ((0, 0), (0, size - before)))


def _joined(one, other):
    """Returns the rows of two parts; a number that only one of them knows is free in the other."""
    size = max(one[1].shape[1], other[1].shape[1])
    parts = [
        (row, _padded(low, size, 0.0), _padded(high, size, 1.0)) for row, low, high in (one, other)
    ]
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _padded(bounds, size, value):
    return np.pad(bounds, ((0, 0), (0, size - bounds.shape[1])), constant_values=value)


def _split(row, low, high, records):
    """Returns bool[n], the rows that no edge cuts, and the pieces of the others.

    A row is cut at the edges of the first number that has any inside its interval.
    """
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
    """Returns f[n, T]: the edges between `low` and `high` in order, then inf."""
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
    """Returns bool[n]: the rows in which two outcomes are equal."""
    equal = [
        (a == b).reshape(len(a), -1).all(1)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    ]
    return np.all(equal, axis=0)
