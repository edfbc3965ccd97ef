"""`generate`, `stream`, `generate_many`: text in, text out."""

import codecs
import dataclasses
import functools
import time
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bytelax import methods, programs, vocab
from bytelax.decode import loop, stopping
from bytelax.decode.drafters import Drafter
from bytelax.decode.loop import Decoding
from bytelax.decode.origins import Origins
from bytelax.decode.sampling import Sampling
from bytelax.decode.stopping import Stops
from bytelax.decode.target import Text
from bytelax.methods import Factory, Method
from bytelax.model import Model
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
    method: str | Drafter | Factory = "ar",
    max_new_bytes: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seeds: int | np.integer | Sequence[int] = 0,
    stop: Sequence[bytes | str] = (),
    allow_eos: bool = True,
    logprobs: bool = False,
    origins: bool = False,
    **options,
) -> Output:
    """Continues a batch of prompts.

    Args:
      model: from `load`; on a mesh if it was loaded so, where every process passes the same.
      prompts: bytes of any kind, or text that is encoded as UTF-8.
      method: a name from `bytelax.methods.METHODS`, a drafter of your own, or a factory of
        methods like those in that table.
      max_new_bytes: budget of each row.
      temperature: 0 is greedy.
      top_k: sample among the k likeliest bytes; 0 among all.
      top_p: sample among the likeliest bytes that hold this much probability.
      seeds: one for each prompt, or one number: prompt i then has seed `seeds + i`.
      stop: strings that end a row; not part of the result.
      allow_eos: whether the model may end a row by itself.
      logprobs: return the model's log-probabilities of the emitted bytes.
      origins: return where each emitted byte came from: drafted, the target's own, ...
      **options: of the method, by the names of its factory in `bytelax.methods`: `draft_length`,
        `block_size`, `unmask`, `alpha`, `gamma`, `latent`, `draft_model`, ... All that verify take
        `window=W`, which pads every window to W bytes.

    Raises:
      ValueError: an argument out of range, an empty prompt, or one beyond the model's context.
    """
    prompts = list(_several("prompts", prompts))
    request = _Request.of(
        model,
        Sampling.of(_whole(model, len(prompts)), temperature=temperature, top_k=top_k,
                 top_p=top_p, allow_eos=allow_eos),
        method=method, max_new_bytes=max_new_bytes, stop=stop, logprobs=logprobs, origins=origins,
        options=options,
    )  # fmt: skip
    ids = [_encode(prompt) for prompt in prompts]
    if not ids:
        raise ValueError("there is no prompt to continue")
    run = request.for_longest(max(map(len, ids)))
    begin = time.perf_counter()
    decoding, compiling = run.start(ids, _row_seeds(seeds, len(ids)))
    jax.block_until_ready(decoding)
    prefill = time.perf_counter() - begin - compiling
    decoding, more = run.advance(decoding)
    results = run.results(decoding, range(len(ids)))
    seconds = time.perf_counter() - begin - compiling - more
    total = Statistics.total([r.stats for r in results])
    total = total.timed(seconds, compiling + more, prefill=prefill)
    return Output(results, total, run.method.lossless)


def stream(
    model: Model,
    prompt: bytes | str,
    *,
    every: int = 8,
    errors: str = "replace",
    method: str | Drafter | Factory = "ar",
    max_new_bytes: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[bytes | str] = (),
    allow_eos: bool = True,
    **options,
) -> Iterator[str]:
    """Continues one prompt and yields its text as it comes, in whole UTF-8 characters.

    Args:
      every: rounds between two looks at the output.
      errors: what becomes of bytes that are not UTF-8, as in `bytes.decode`.

    The other arguments are those of `generate`, and so is the text that the pieces add up to.
    """
    request = _Request.of(
        model,
        Sampling.of(_whole(model, 1), temperature=temperature, top_k=top_k, top_p=top_p,
                 allow_eos=allow_eos),
        method=method, max_new_bytes=max_new_bytes, stop=stop, logprobs=False, origins=False,
        options=options,
    )  # fmt: skip
    if every < 1:
        raise ValueError(f"every must be at least 1, got {every}")
    ids = _encode(prompt)
    characters = codecs.getincrementaldecoder("utf-8")(errors)
    return _stream(request.for_longest(len(ids)), ids, _row_seeds(seed, 1), every, characters)


def _stream(
    run: "_Run",
    ids: list[int],
    seeds: np.ndarray,
    every: int,
    characters: codecs.IncrementalDecoder,
) -> Iterator[str]:
    stop = run.request.stop
    held_back = max(map(len, stop), default=1) - 1  # may yet become a stop string
    decoding, _ = run.start([ids], seeds)
    sent, finished = 0, False
    while not finished:
        decoding, _ = run.advance(decoding, rounds=every)
        (result,) = run.results(decoding, range(1))
        finished = result.stop != stopping.REASONS[stopping.RUNNING]
        known = max(sent, len(result.bytes) - (0 if finished else held_back))
        piece = characters.decode(result.bytes[sent:known], final=finished)
        sent = known
        if piece:
            yield piece


def generate_many(
    model: Model,
    prompts: Iterable[bytes | str],
    *,
    batch: int = 64,
    method: str | Drafter | Factory = "ar",
    max_new_bytes: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seeds: int | np.integer = 0,
    stop: Sequence[bytes | str] = (),
    allow_eos: bool = True,
    logprobs: bool = False,
    origins: bool = False,
    **options,
) -> Iterator[Result]:
    """Continues any number of prompts, `batch` at a time, and yields results as they finish.

    A row that has finished is refilled with the next prompt at once, so that one long row does not
    idle the others. Prompt i has seed `seeds + i`, and at one buffer size its result does not
    depend on when or beside which others it ran. A prompt longer than those before waits until the
    batch has drained, and goes on in larger buffers. Other arguments as in `generate`.

    On a mesh the rows are refilled once each part of it has one that has ended.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    if batch != _whole(model, batch):
        raise ValueError(
            f"a batch of {batch} rows does not divide among {_whole(model, 1)} parts of the mesh"
        )
    if not isinstance(seeds, int | np.integer):
        raise ValueError("generate_many takes one number as seeds; prompt i has seeds + i")
    request = _Request.of(
        model,
        Sampling.of(batch, temperature=temperature, top_k=top_k, top_p=top_p, allow_eos=allow_eos),
        method=method, max_new_bytes=max_new_bytes, stop=stop, logprobs=logprobs, origins=origins,
        options=options,
    )  # fmt: skip
    return _generate_many(request, _several("prompts", prompts), batch, int(seeds))


def _generate_many(
    request: "_Request", prompts: Iterable[bytes | str], batch: int, seeds: int
) -> Iterator[Result]:
    queue = ((index, _encode(prompt)) for index, prompt in enumerate(prompts))
    waiting = next(queue, None)
    while waiting is not None:
        run = request.for_longest(len(waiting[1]))
        rows: list[int | None] = [None] * batch  # the prompt in each row
        decoding = None
        while waiting is not None or any(row is not None for row in rows):
            for row in range(batch):
                fits = waiting is not None and len(waiting[1]) + request.budget <= run.limit
                if rows[row] is None and fits:
                    rows[row], ids = waiting
                    # On a mesh every part of it takes in the prompt, and one of them keeps it.
                    parts = _whole(request.model, 1)
                    seed = _row_seeds(seeds + rows[row], 1).repeat(parts)
                    one, _ = run.start([ids] * parts, seed)
                    decoding = _idle(one, batch) if decoding is None else decoding
                    decoding = run.insert(decoding, one, row)
                    waiting = next(queue, None)
            if all(row is None for row in rows):
                break  # the next prompt needs larger buffers, or is too long for any
            decoding, _ = run.advance(decoding, until_one_ends=True)
            for row, result in enumerate(run.results(decoding, rows)):
                if rows[row] is not None and result.stop != "running":
                    yield result
                    rows[row] = None
            decoding = run.retire(decoding, [row is None for row in rows])


@dataclasses.dataclass(frozen=True)
class _Request:
    """What is asked for, checked."""

    model: Model
    law: Sampling
    method: str | Drafter | Factory
    options: dict
    budget: int
    stop: tuple[bytes, ...]
    stops: Stops
    logprobs: bool
    origins: bool

    @classmethod
    def of(
        cls, model, law, *, method, max_new_bytes, stop, logprobs, origins, options
    ) -> "_Request":
        if max_new_bytes < 1:
            raise ValueError(f"max_new_bytes must be at least 1, got {max_new_bytes}")
        options = methods.settle(method, options)
        if model.mesh is not None and isinstance(options.get("draft_model"), Model):
            options["draft_model"] = options["draft_model"].on(model.mesh).part
        stop = tuple(_bytes(string) for string in _several("stop", stop))
        request = cls(
            model, law, method, options, max_new_bytes, stop, Stops.of(stop), logprobs, origins
        )
        request.build(_SMALLEST_BUFFER)  # or raise now
        return request

    def build(self, capacity: int) -> Method:
        return methods.build(
            self.method, self.model.part, self.law, capacity=capacity, **self.options
        )

    def for_longest(self, prompt: int) -> "_Run":
        """The request in buffers that hold prompts of up to `prompt` ids and their output."""
        needed = prompt + self.budget
        limit = self.model.config.max_bytes
        if needed > limit:
            raise ValueError(
                f"a prompt of {prompt - 1} bytes and {self.budget} new ones exceed the model's "
                f"context of {limit - 1} bytes; shorten the prompt or lower max_new_bytes"
            )
        capacity = max(_SMALLEST_BUFFER, 1 << (needed - 1).bit_length())
        return _Run(self, self.build(capacity), capacity)


@dataclasses.dataclass(frozen=True)
class _Run:
    """A request at one buffer size: the compiled programs and what they are called with."""

    request: _Request
    method: Method
    capacity: int

    @property
    def limit(self) -> int:
        """Longest text that both the buffers and the model can hold."""
        return min(self.capacity, self.request.model.config.max_bytes)

    @property
    def params(self) -> dict:
        return {"target": self.request.model.params, "drafter": self.method.params}

    @property
    def mesh(self) -> Mesh | None:
        return self.request.model.mesh

    @functools.cached_property
    def placement(self) -> Placement | None:
        return None if self.mesh is None else Placement.of(self.mesh, self.params)

    def start(self, prompts: list[list[int]], seeds: np.ndarray) -> tuple[Decoding, float]:
        """Takes in the prompts; returns the seconds spent compiling too.

        On a mesh, rows are added that have nothing to do, until there are as many for each part.
        """
        rows = _whole(self.request.model, len(prompts))
        ids = np.zeros((rows, self.capacity), np.int32)
        ids[:, 0] = vocab.BOS
        length, budget = np.ones(rows, np.int32), np.zeros(rows, np.int32)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = prompt
            length[row], budget[row] = len(prompt), self.request.budget
        seeds = np.pad(seeds, (0, rows - len(prompts)))
        return programs.run(
            _start,
            self.params,
            *self._rows((Text(ids, length), budget, seeds)),
            placement=self.placement,
            target=self.method.target,
            drafter=self.method.drafter,
            draft_length=self.method.draft_length,
            log_probs=self.request.logprobs,
            origins=self.request.origins,
        )

    def advance(
        self, decoding: Decoding, *, rounds: int | None = None, until_one_ends: bool = False
    ) -> tuple[Decoding, float]:
        """Decodes until every row has ended, or earlier. The decoding is donated."""
        rounds = np.asarray(np.iinfo(np.int32).max if rounds is None else rounds, np.int32)
        return programs.run(
            _advance,
            self.params,
            decoding,
            self._rows(self.request.law),
            *self._everywhere((self.request.stops, rounds)),
            placement=self.placement,
            target=self.method.target,
            drafter=self.method.drafter,
            accept=self.method.accept,
            until_one_ends=until_one_ends,
        )

    def insert(self, decoding: Decoding, one: Decoding, row: int) -> Decoding:
        """The decoding with a started prompt in one of its rows."""
        return _insert(
            decoding, one, self._everywhere(np.asarray(row, np.int32)), placement=self.placement
        )

    def retire(self, decoding: Decoding, idle: list[bool]) -> Decoding:
        """Rows without a prompt stand still."""
        return _retire(decoding, self._rows(np.asarray(idle)), placement=self.placement)

    def _rows(self, tree):
        return self._put(tree, sharding.batch_sharding)

    def _everywhere(self, tree):
        return self._put(tree, sharding.replicated)

    def _put(self, tree, place):
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, tree)
        return global_arrays.put(tree, place(self.mesh))

    def results(self, decoding: Decoding, indices: Iterable[int | None]) -> list[Result]:
        """What stands in each row, finished or not."""
        host = global_arrays.fetch(
            (decoding.text, decoding.prompt, decoding.ended, decoding.log_probs,
             decoding.origins, decoding.counts, self.method.target.passes(decoding.state))
        )  # fmt: skip
        text, prompt, ended, log_probs, origins, counts, passes = host
        results = []
        for row, index in enumerate(indices):
            begin, end = prompt[row], text.length[row]
            emitted = text.ids[row, begin:end]
            keep = self._without_stop(emitted, int(ended[row]))
            kept = row, slice(begin, begin + keep)
            results.append(
                Result(
                    index=-1 if index is None else index,
                    bytes=vocab.decode(emitted[:keep]),
                    stop=stopping.REASONS[ended[row]],
                    stats=Statistics.of_row(
                        self.request.model, counts, passes, row, draft_params=self.method.params
                    ),
                    log_probs=None if log_probs is None else log_probs[kept],
                    origins=None if origins is None else origins[kept],
                )
            )
        return results

    def _without_stop(self, emitted: np.ndarray, reason: int) -> int:
        """How many of the emitted ids belong to the result."""
        if reason == stopping.BY_EOS:
            return len(emitted) - 1
        if reason == stopping.BY_STOP:
            out = vocab.decode(emitted)
            return len(out) - max(len(s) for s in self.request.stop if out.endswith(s))
        return len(emitted)


@functools.partial(
    jax.jit,
    static_argnames=("placement", "target", "drafter", "draft_length", "log_probs", "origins"),
)
def _start(params, text, budget, seeds, *, placement, **parts):
    def start(params, text, budget, seeds):
        return loop.start(params, text, budget=budget, seeds=seeds, **parts)

    kinds = ("params", "rows", "rows", "rows")
    return _on(placement, start, kinds, params, text, budget, seeds)


@functools.partial(
    jax.jit,
    static_argnames=("placement", "target", "drafter", "accept", "until_one_ends"),
    donate_argnums=1,
)
def _advance(params, decoding, law, stops, rounds, *, placement, until_one_ends, **parts):
    def advance(params, decoding, law, stops, rounds):
        most = decoding.counts.rounds + jnp.minimum(rounds, np.iinfo(np.int32).max // 2)
        running = (decoding.ended == stopping.RUNNING).sum()

        def until(now: Decoding):
            enough = (now.counts.rounds >= most).any()
            if until_one_ends:
                enough |= (now.ended == stopping.RUNNING).sum() < running
            return enough

        return loop.decode(params, decoding, law=law, stops=stops, until=until, **parts)

    kinds = ("params", "rows", "rows", "same", "same")
    return _on(placement, advance, kinds, params, decoding, law, stops, rounds)


def _on(placement, function, kinds, *args):
    if placement is None:
        return function(*args)
    return per_device.spread(function, placement, kinds, *args)


def _idle(one: Decoding, batch: int) -> Decoding:
    """A batch of rows that have ended, shaped like the rows of `one`, and lying where they do."""

    def rows():
        wide = jax.tree.map(lambda x: jnp.zeros((batch, *x.shape[1:]), x.dtype), one)
        length = jnp.ones(batch, jnp.int32)
        return dataclasses.replace(
            wide,
            text=Text(wide.text.ids, length),
            ended=jnp.full(batch, stopping.BY_LENGTH, jnp.int32),
        )

    return jax.jit(rows, out_shardings=jax.tree.map(lambda x: x.sharding, one))()


@functools.partial(jax.jit, static_argnames="placement", donate_argnums=0)
def _insert(decoding: Decoding, one: Decoding, row, *, placement) -> Decoding:
    def insert(decoding, one, row):
        rows = decoding.ended.shape[0]
        own = row - (0 if placement is None else per_device.shard_index()) * rows
        own = jnp.where(own < 0, rows, own)  # another part's, as those beyond the last are
        return jax.tree.map(
            lambda batch, new: batch.at[own].set(new[0], mode="drop"), decoding, one
        )

    return _on(placement, insert, ("rows", "rows", "same"), decoding, one, row)


@functools.partial(jax.jit, static_argnames="placement", donate_argnums=0)
def _retire(decoding: Decoding, idle, *, placement) -> Decoding:
    def retire(decoding, idle):
        ended = jnp.where(idle, stopping.BY_LENGTH, decoding.ended)
        return dataclasses.replace(decoding, ended=ended)

    return _on(placement, retire, ("rows", "rows"), decoding, idle)


def _whole(model: Model, rows: int) -> int:
    """The least number of rows from there on that divides among the parts of the model's mesh."""
    parts = 1 if model.mesh is None else sharding.batch_parts(model.mesh)
    return -(-rows // parts) * parts


def _several(name: str, strings: Iterable[bytes | str]) -> Iterable[bytes | str]:
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
