"""`generate`, `stream`, `generate_many`: text in, text out, by one `Method`."""

import codecs
import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bytelax import compiling, methods, vocab
from bytelax.calculator import Sizes
from bytelax.decode import stopping
from bytelax.decode.acceptance import Acceptance
from bytelax.decode.method import Decoding, Method, Params
from bytelax.decode.origins import Origins
from bytelax.decode.sampling import Sampling
from bytelax.decode.stopping import Stops
from bytelax.decode.target import Text
from bytelax.model import Model
from bytelax.models import layers
from bytelax.pods import global_arrays, per_device, sharding
from bytelax.pods.per_device import Placement
from bytelax.statistics import Statistics

_SMALLEST_BUFFER = 256  # bytes; text buffers are powers of two from here, so programs are shared


@dataclasses.dataclass(frozen=True)
class Result:
    """One finished prompt.

    Attributes:
      index: place of the prompt among those given.
      bytes: the continuation, without EOS and stop string.
      stop: why it ended: "eos", "stop" or "length".
      stats: what it took.
      log_probs: the model's log-probability of each byte of `bytes` before temperature and
        truncation, nats; None when not asked for.
      origins: where each byte of `bytes` came from; None when not asked for.
    """

    index: int
    bytes: bytes
    stop: str
    stats: Statistics
    log_probs: np.ndarray | None = None
    origins: Origins | None = None

    @property
    def text(self) -> str:
        """`bytes` as UTF-8; what is not UTF-8 becomes U+FFFD."""
        return self.bytes.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class Output:
    """What `generate` returns: one result a prompt, in order."""

    results: list[Result]
    stats: Statistics
    lossless: bool

    @property
    def bytes(self) -> list[bytes]:
        return [result.bytes for result in self.results]

    @property
    def text(self) -> list[str]:
        return [result.text for result in self.results]


def generate(
    model: Model,
    prompts: Sequence[bytes | str],
    *,
    method: str | Method = "ar",
    max_new_bytes: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seeds: int | np.integer | Sequence[int] = 0,
    stop: Sequence[bytes | str] = (),
    allow_eos: bool = True,
    logprobs: bool = False,
    origins: bool = False,
    accept: Acceptance | None = None,
    draft_params: Any = (),
    **options,
) -> Output:
    """Continues a batch of prompts.

    Args:
      model: from `load`; on a mesh if it was loaded so, where every process passes the same.
      prompts: bytes of any kind, or text that is encoded as UTF-8.
      method: a name from `bytelax.methods.METHODS`, or a `Method` whose target is
        `model.target()`.
      max_new_bytes: budget of each row.
      temperature: 0 is greedy.
      top_k: sample among the k likeliest bytes; 0 among all.
      top_p: sample among the likeliest bytes that hold this much probability.
      seeds: one for each prompt, or one number: prompt i then has seed `seeds + i`.
      stop: strings that end a row; not part of the result.
      allow_eos: whether the model may end a row by itself.
      logprobs: return the model's log-probabilities of the emitted bytes.
      origins: return where each emitted byte came from: drafted, the target's own, ...
      accept: an acceptance rule in place of the method's own.
      draft_params: the parameters of the drafter of a `Method`.
      **options: of a named method, by the names of its factory in `bytelax.methods`:
        `draft_length`, `block_size`, `unmask`, `latent`, `draft_model`, ... All that verify take
        `window=W`, which pads every window to W bytes.

    Raises:
      ValueError: an argument out of range, an empty prompt, or one beyond the model's context.
    """
    ids = [_encode(prompt) for prompt in _strings("prompts", prompts)]
    engine = _Engine.of(
        model, method=method, max_new_bytes=max_new_bytes, temperature=temperature, top_k=top_k,
        top_p=top_p, stop=stop, allow_eos=allow_eos, logprobs=logprobs, origins=origins,
        accept=accept, draft_params=draft_params, **options,
    )  # fmt: skip
    if not ids:
        raise ValueError("there is no prompt to continue")
    capacity = engine.capacity(max(map(len, ids)))
    rows = engine.whole(len(ids))
    begin = time.perf_counter()
    with compiling.watch() as compiled:
        decoding = engine.start(ids, _row_seeds(seeds, len(ids)), rows=rows, capacity=capacity)
        jax.block_until_ready(decoding)
        prefill = time.perf_counter() - begin - compiled.seconds
        decoding = jax.block_until_ready(engine.advance(decoding))
    results = list(engine.results(decoding, dict(enumerate(range(len(ids))))).values())
    seconds = time.perf_counter() - begin - compiled.seconds
    total = Statistics.total([result.stats for result in results])
    total = total.timed(seconds, compiled.seconds, prefill=prefill)
    return Output(results, total, engine.method.lossless)


def stream(
    model: Model,
    prompt: bytes | str,
    *,
    every: int = 8,
    errors: str = "replace",
    seed: int = 0,
    **request,
) -> Iterator[str]:
    """Continues one prompt and yields its text as it comes, in whole UTF-8 characters.

    Args:
      model: as in `generate`.
      prompt: as in `generate`.
      every: rounds between two looks at the output.
      errors: what becomes of bytes that are not UTF-8, as in `bytes.decode`.
      seed: that of the row.
      **request: the other keywords of `generate`, whose text the pieces add up to.
    """
    engine, ids = _Engine.of(model, **request), _encode(prompt)
    if every < 1:
        raise ValueError(f"every must be at least 1, got {every}")
    seeds, capacity = _row_seeds(seed, 1), engine.capacity(len(ids))
    held_back = max(map(len, engine.stop), default=1) - 1  # may yet become a stop string
    characters = codecs.getincrementaldecoder("utf-8")(errors)

    def pieces():
        decoding = engine.start([ids], seeds, rows=engine.whole(1), capacity=capacity)
        sent, finished = 0, False
        while not finished:
            decoding = engine.advance(decoding, rounds=every)
            result = engine.results(decoding, {0: 0})[0]
            finished = result.stop != stopping.REASONS[stopping.RUNNING]
            known = max(sent, len(result.bytes) - (0 if finished else held_back))
            piece = characters.decode(result.bytes[sent:known], final=finished)
            sent = known
            if piece:
                yield piece

    return pieces()


def generate_many(
    model: Model,
    prompts: Iterable[bytes | str],
    *,
    batch: int = 64,
    seeds: int | np.integer = 0,
    **request,
) -> Iterator[Result]:
    """Continues any number of prompts, `batch` at a time, and yields results as they finish.

    Rows that have finished are refilled with the next prompts, one eighth of the batch at once, so
    that one long row does not idle the others. Prompt i has seed `seeds + i`, and at one buffer
    size and batch its result does not depend on when or beside which others it ran. A prompt longer
    than those before waits until the batch has drained, and goes on in larger buffers.

    Args:
      model: as in `generate`; on a mesh each part of it refills its own rows.
      prompts: as in `generate`, but any iterable.
      batch: rows that are decoded together.
      seeds: one number.
      **request: the other keywords of `generate`.
    """
    engine = _Engine.of(model, **request)
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    if batch != engine.whole(batch):
        raise ValueError(
            f"a batch of {batch} rows does not divide among {engine.parts} parts of the mesh"
        )
    if not isinstance(seeds, int | np.integer):
        raise ValueError("generate_many takes one number as seeds; prompt i has seeds + i")
    queue = _Queue(_strings("prompts", prompts), int(seeds))
    return _generate_many(engine, queue, batch)


class _Queue:
    """Prompts with their seeds, up to the first that is none: the rows before it are finished."""

    def __init__(self, prompts: Iterable[bytes | str], seeds: int):
        self._prompts, self._seeds = enumerate(prompts), seeds
        self.error: Exception | None = None

    def take(self) -> tuple[int, list[int], int] | None:
        """Number, ids and seed of the next prompt."""
        if self.error is not None:
            return None
        try:
            for index, prompt in self._prompts:
                return index, _encode(prompt), int(_row_seeds(self._seeds + index, 1)[0])
        except Exception as error:  # also of what makes the prompts
            self.error = error
        return None


def _generate_many(engine: "_Engine", queue: _Queue, batch: int) -> Iterator[Result]:
    each = batch // engine.parts  # rows of a part of the mesh
    together = max(1, each // 8)  # prompts that a part takes in at once
    slots = range(engine.parts * together)
    waiting = queue.take()
    while waiting is not None:
        capacity = engine.capacity(len(waiting[1]))
        rows: dict[int, int] = {}  # the prompt in each row that has one
        decoding = None
        while True:
            while waiting is not None and engine.fits(waiting[1], capacity):
                prompts: list[list[int]] = [[] for _ in slots]
                where = np.full(len(slots), each, np.int32)  # a row of the part; beyond: nowhere
                seed = np.zeros(len(slots), np.uint32)
                for slot in slots:
                    own = range(slot // together * each, (slot // together + 1) * each)
                    free = [row for row in own if row not in rows]
                    if free and waiting is not None and engine.fits(waiting[1], capacity):
                        rows[free[0]], prompts[slot], seed[slot] = waiting
                        where[slot] = free[0] - own.start
                        waiting = queue.take()
                if not any(prompts):
                    break
                new = engine.start(prompts, seed, rows=len(slots), capacity=capacity)
                decoding = engine.idle(new, each) if decoding is None else decoding
                decoding = engine.insert(decoding, new, where)
            if not rows:
                break  # the next prompt needs larger buffers, or is too long for any
            decoding = engine.advance(decoding, ended=together)
            for row, result in engine.results(decoding, rows).items():
                if result.stop != stopping.REASONS[stopping.RUNNING]:
                    del rows[row]
                    yield result
    if queue.error is not None:
        raise queue.error


@dataclasses.dataclass(frozen=True)
class _Engine:
    """A request, checked: what is the same for every prompt."""

    model: Model
    method: Method
    params: Params
    weights: Sizes  # that a pass of each network reads
    sampling: Callable[[int], Sampling]  # from the number of rows
    budget: int
    stop: tuple[bytes, ...]
    stops: Stops
    log_probs: bool
    origins: bool

    @classmethod
    def of(
        cls,
        model: Model,
        *,
        method: str | Method = "ar",
        max_new_bytes: int = 128,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        stop: Sequence[bytes | str] = (),
        allow_eos: bool = True,
        logprobs: bool = False,
        origins: bool = False,
        draft_params: Any = (),
        **options,
    ) -> "_Engine":
        if not isinstance(max_new_bytes, int | np.integer) or max_new_bytes < 1:
            raise ValueError(f"max_new_bytes must be a number from 1, got {max_new_bytes!r}")
        sampling = functools.partial(
            Sampling.of, temperature=temperature, top_k=top_k, top_p=top_p, allow_eos=allow_eos
        )
        sampling(1)  # or raise now
        built, own = methods.build(method, model, **options)
        params = Params(model.params, own if isinstance(method, str) else draft_params)
        weights = model.weights_per_pass._replace(draft_model=layers.weights(params.drafter))
        stop = tuple(_bytes(string) for string in _strings("stop", stop))
        stops = Stops.of(stop)
        return cls(
            model, built, params, weights, sampling, max_new_bytes, stop, stops, logprobs, origins
        )

    @property
    def mesh(self) -> Mesh | None:
        return self.model.mesh

    @functools.cached_property
    def placement(self) -> Placement | None:
        return None if self.mesh is None else Placement.of(self.mesh, self.params)

    @property
    def parts(self) -> int:
        """Batch shards of the mesh."""
        return 1 if self.mesh is None else sharding.batch_parts(self.mesh)

    def whole(self, rows: int) -> int:
        """`rows` rounded up to a multiple of the batch shards."""
        return -(-rows // self.parts) * self.parts

    def fits(self, prompt: list[int], capacity: int) -> bool:
        return len(prompt) + self.budget <= min(capacity, self.model.config.max_bytes)

    def capacity(self, prompt: int) -> int:
        """Length of the buffers for a prompt of `prompt` ids and its output, a power of two."""
        needed, limit = prompt + self.budget, self.model.config.max_bytes
        if needed > limit:
            raise ValueError(
                f"a prompt of {prompt - 1} bytes and {self.budget} new ones exceed the model's "
                f"context of {limit - 1} bytes; shorten the prompt or lower max_new_bytes"
            )
        return max(_SMALLEST_BUFFER, 1 << (needed - 1).bit_length())

    def start(
        self, prompts: list[list[int]], seeds: np.ndarray, *, rows: int, capacity: int
    ) -> Decoding:
        """Takes in the prompts. Rows without one have ended."""
        ids = np.zeros((rows, capacity), np.int32)
        ids[:, 0] = vocab.BOS
        length, budget = np.ones(rows, np.int32), np.zeros(rows, np.int32)
        for row, prompt in enumerate(prompts):
            if prompt:
                ids[row, : len(prompt)] = prompt
                length[row], budget[row] = len(prompt), self.budget
        seeds = np.pad(seeds, (0, rows - len(seeds)))
        by_row = (Text(ids, length), budget, seeds, self.sampling(rows))
        return _start(
            self.params, *self._rows(by_row), self._put(self.stops, sharding.replicated),
            method=self.method, placement=self.placement, log_probs=self.log_probs,
            origins=self.origins,
        )  # fmt: skip

    def advance(
        self, decoding: Decoding, *, rounds: int | None = None, ended: int | None = None
    ) -> Decoding:
        """Decodes until every row has ended, or earlier. The decoding is donated.

        Args:
          decoding: of `start` or `insert`.
          rounds: the most rounds to run.
          ended: number of rows to wait for, on each batch shard of the mesh.
        """
        return _advance(
            self.params,
            decoding,
            method=self.method,
            placement=self.placement,
            rounds=rounds,
            ended=ended,
        )

    def idle(self, one: Decoding, rows: int) -> Decoding:
        """An all-finished batch with the row shapes and shardings of `one`, `rows` a part."""
        return _idle(one, rows=rows, placement=self.placement)

    def insert(self, decoding: Decoding, new: Decoding, where: np.ndarray) -> Decoding:
        """The decoding with new rows in the places of others. The decoding is donated.

        Args:
          decoding: the batch.
          new: of `start`.
          where: of each new row, its row within the same part; beyond the last it is dropped.
        """
        return _insert(decoding, new, self._rows(where), placement=self.placement)

    def results(self, decoding: Decoding, indices: dict[int, int]) -> dict[int, Result]:
        """What stands in some rows, finished or not; `indices` are their prompts'."""
        passes = self.method.target.passes(decoding.state)
        text, prompt, ended, log_probs, origins, counts, passes = global_arrays.fetch(
            (decoding.text, decoding.prompt, decoding.ended, decoding.log_probs,
             decoding.origins, decoding.counts, passes)
        )  # fmt: skip
        results = {}
        for row, index in indices.items():
            emitted = text.ids[row, prompt[row] : text.length[row]]
            keep = self._without_stop(emitted, int(ended[row]))
            kept = row, slice(prompt[row], prompt[row] + keep)
            results[row] = Result(
                index=index,
                bytes=vocab.decode(emitted[:keep]),
                stop=stopping.REASONS[ended[row]],
                stats=Statistics.of_row(self.weights, counts, passes, row),
                log_probs=None if log_probs is None else log_probs[kept],
                origins=None if origins is None else origins[kept],
            )
        return results

    def _without_stop(self, emitted: np.ndarray, reason: int) -> int:
        """Number of emitted ids that belong to the result."""
        if reason == stopping.BY_EOS:
            return len(emitted) - 1
        if reason == stopping.BY_STOP:
            out = vocab.decode(emitted)
            return len(out) - max(len(s) for s in self.stop if out.endswith(s))
        return len(emitted)

    def _rows(self, tree):
        return self._put(tree, sharding.batch_sharding)

    def _put(self, tree, place):
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, tree)
        return global_arrays.put(tree, place(self.mesh))


@functools.partial(jax.jit, static_argnames=("method", "placement", "log_probs", "origins"))
def _start(params, text, budget, seeds, law, stops, *, method, placement, **kept):
    def start(params, text, budget, seeds, law, stops):
        return method.init(
            params, text, budget=budget, seeds=seeds, sampling=law, stops=stops, **kept
        )

    kinds = ("params", "rows", "rows", "rows", "rows", "same")
    return _on(placement, start, kinds, params, text, budget, seeds, law, stops)


@functools.partial(
    jax.jit, static_argnames=("method", "placement", "rounds", "ended"), donate_argnums=1
)
def _advance(params, decoding, *, method, placement, rounds, ended):
    def advance(params, decoding):
        before, running = decoding.counts.rounds, _running(decoding)

        def until(now):
            enough = jnp.zeros((), bool)
            if rounds is not None:
                enough |= (now.counts.rounds >= before + rounds).any()
            if ended is not None:
                enough |= _running(now) <= running - ended
            return enough

        return method.decode(params, decoding, until=until)

    return _on(placement, advance, ("params", "rows"), params, decoding)


@functools.partial(jax.jit, static_argnames=("rows", "placement"))
def _idle(one, *, rows, placement):
    def idle(one):
        wide = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), one)
        return dataclasses.replace(
            wide,
            text=Text(wide.text.ids, jnp.ones(rows, jnp.int32)),
            ended=jnp.full(rows, stopping.BY_LENGTH, jnp.int32),
        )

    return _on(placement, idle, ("rows",), one)


@functools.partial(jax.jit, static_argnames="placement", donate_argnums=0)
def _insert(decoding, new, where, *, placement):
    def insert(decoding, new, where):
        return jax.tree.map(lambda batch, new: batch.at[where].set(new, mode="drop"), decoding, new)

    return _on(placement, insert, ("rows", "rows", "rows"), decoding, new, where)


def _on(placement, function, kinds, *args):
    if placement is None:
        return function(*args)
    return per_device.spread(function, placement, kinds, *args)


def _running(decoding):
    return (decoding.ended == stopping.RUNNING).sum()


def _strings(name: str, strings: Iterable[bytes | str]) -> Iterable[bytes | str]:
    if isinstance(strings, bytes | str):
        raise ValueError(f"{name} must be a list of strings, not one string: [{strings!r}]")
    return strings


def _bytes(text: bytes | str) -> bytes:
    if not isinstance(text, str | bytes | bytearray):
        raise ValueError(f"prompts and stop strings are bytes or text, got {text!r}")
    return text.encode("utf-8") if isinstance(text, str) else bytes(text)


def _encode(prompt: bytes | str) -> list[int]:
    prompt = _bytes(prompt)
    if not prompt:
        raise ValueError("a prompt must hold at least one byte")
    return vocab.encode(prompt)


def _row_seeds(seeds: int | np.integer | Sequence[int], rows: int) -> np.ndarray:
    if isinstance(seeds, int | np.integer):
        seeds = range(int(seeds), int(seeds) + rows)
    if len(seeds) != rows:
        raise ValueError(f"{len(seeds)} seeds for {rows} prompts; give one each, or one number")
    if any(not 0 <= seed < 1 << 32 for seed in seeds):
        raise ValueError("seeds must lie in 0..2**32 - 1")
    return np.array(seeds, np.uint32)
