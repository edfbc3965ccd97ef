"""Text generation with a `Method`: `generate`, `stream`, `generate_many` and `turns`."""

import codecs
import dataclasses
import difflib
import functools
import inspect
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bytelax import compiling, vocab
from bytelax.decode import stopping
from bytelax.decode.acceptance import Acceptance, Lossless
from bytelax.decode.constraint import Automaton
from bytelax.decode.method import Method
from bytelax.decode.sampling import ByRow
from bytelax.model import Model
from bytelax.options import METHODS, Options
from bytelax.progress import Progress, shown
from bytelax.running import requests
from bytelax.running.engine import Engine
from bytelax.running.requests import Request, Seeds, Stop
from bytelax.running.results import Output, Result, Statistics
from bytelax.running.rows import Queue, in_rows

_EVERY = 8  # rounds after which the output is fetched


def generate(
    model: Model,
    prompts: bytes | str | Sequence[bytes | str],
    *,
    samples: int = 1,
    method: str | Options | Method = "ar",
    max_new_bytes: int | Sequence[int] = 128,
    temperature: ByRow = 0.0,
    top_k: ByRow = 0,
    top_p: ByRow = 1.0,
    seeds: Seeds = 0,
    stop: Stop = (),
    allow_eos: bool = True,
    logprobs: bool = False,
    origins: bool = False,
    constraint: Automaton | None = None,
    accept: Acceptance | Lossless | None = None,
    window: int | None = None,
    draft_params: Any = (),
    progress: Progress = False,
    **options,
) -> Output:
    """Continues prompts with a decoding method.

    Prompts that need buffers of the same size, a power of two, run as one batch, padded with empty
    rows to 1, 2, 4, 8, 16, 24, ... rows. So a long prompt does not slow the others, and few
    programs are compiled.

    Args:
      model: from `load`. On several processes, each must pass the same arguments.
      prompts: bytes of any kind, or text, which is encoded as UTF-8; one of them, or a
        list. An empty one is continued from the beginning of a text.
      samples: number of continuations of each prompt, which is prefilled once. In the results
        they follow one another.
      method: a name from `bytelax.options.METHODS`; one of the classes there, with its options; or
        a `Method` whose target is `model.target()`.
      max_new_bytes: maximum number of bytes emitted. One number, or one per prompt.
      temperature: sampling temperature; 0 is greedy. One number, or one per prompt.
      top_k: samples from the k likeliest bytes only; 0 means from all. One number, or one per
        prompt.
      top_p: samples from the smallest set of likeliest bytes with this total probability. One
        number, or one per prompt.
      seeds: one per result; a single number, with which result i has seed `seeds + i`; or a key,
        `jax.random.key(0)`, that draws them.
      stop: a string or strings that end a row, which are not part of the result. One list, or one
        per prompt.
      allow_eos: whether the model may end a row by emitting EOS.
      logprobs: whether to return the model's log-probabilities of the emitted bytes.
      origins: whether to return the provenance of each emitted byte: drafted, the target's own, ...
      constraint: what the output must obey, from `bytelax.constraints`. A row ends when nothing may
        follow; `max_new_bytes` and `stop` may end it earlier.
      accept: acceptance rule to use in place of the method's own.
      window: number of bytes to pad every verified window to. Lossless methods with the same window
        write the same bytes, bit for bit. None verifies no more than what was drafted.
      draft_params: parameters of the drafter, any pytree of arrays, if `method` is a `Method`.
      progress: True shows a bar on a terminal; a function is called with the number of bytes that
        are newly done. They add up to `max_new_bytes` for each result: the bytes that a row does
        not use count when it ends.
      **options: options of a method that is given by name, the fields of its class in
        `bytelax.options`: `draft_length`, `block_size`, `unmask`, `latent`, `draft_model`, ...

    Raises:
      ValueError: an argument is out of range, or a prompt exceeds the model's context.
    """
    _check_names(generate, options)
    asked = requests.all_of(prompts, seeds, samples)
    engine = Engine.of(
        model, len(asked), len(asked) * samples, method=method, max_new_bytes=max_new_bytes,
        temperature=temperature, top_k=top_k, top_p=top_p, stop=stop, allow_eos=allow_eos,
        logprobs=logprobs, origins=origins, constraint=constraint, accept=accept, window=window,
        draft_params=draft_params, **options,
    )  # fmt: skip
    batches: dict[int, list[Request]] = {}  # by the size of their buffers
    for each in asked:
        batches.setdefault(engine.capacity(each), []).append(each)
    results, stats = [], []
    size = samples * sum(map(engine.budget, asked))
    with shown(progress, "compiling and generating", size) as advance:
        for capacity, batch in batches.items():
            found, total = _run(engine, batch, capacity, advance)
            results += found
            stats.append(total)
    results.sort(key=lambda each: each.index)
    return Output(results, Statistics.sum(stats), engine.method.lossless)


def _run(
    engine: Engine, batch: Sequence[Request], capacity: int, advance: Callable[[int], object] | None
) -> tuple[list[Result], Statistics]:
    """Decodes a batch to its end; returns results and their total, with times.

    With `advance` it fetches the rows every few rounds, and calls it.
    """
    empty = [None] * (engine.rows(len(batch)) - len(batch))
    begin = time.perf_counter()
    each = 1 + len(batch[0].further)  # rows of each request
    with compiling.watch() as compiled:
        decoding = engine.start([*batch, *empty], capacity=capacity)
        if each > 1:
            seeds = [seed for one in batch for seed in (one.seed, *one.further)]
            seeds += [0] * (each * len(empty))
            decoding = engine.repeat(decoding, each, np.array(seeds, np.uint32))
        decoding = jax.block_until_ready(decoding)
        prefill = time.perf_counter() - begin - compiled.seconds
        if advance is None:
            decoding = engine.advance(decoding)
        done = 0
        while advance is not None and not engine.ended(decoding).all():
            decoding = engine.advance(decoding, rounds=_EVERY)
            before, done = done, engine.done(decoding)
            advance(done - before)
        decoding = jax.block_until_ready(decoding)
    indices = {row: batch[row // each].index for row in range(each * len(batch))}
    results = list(engine.results(decoding, indices).values())
    seconds = time.perf_counter() - begin - compiled.seconds
    total = Statistics.total([result.stats for result in results])
    total = dataclasses.replace(
        total, seconds=seconds, prefill_seconds=prefill, compile_seconds=compiled.seconds
    )
    return results, total


_ELSEWHERE = {  # names in other libraries
    "key": "seeds",
    "rng": "seeds",
    "do_sample": "temperature",
    "max_length": "max_new_bytes",
    "max_tokens": "max_new_bytes",
    "num_return_sequences": "samples",
}


def _check_names(function: Callable, given: Iterable[str]) -> None:
    """Raises ValueError for a keyword that is nearly one of the function's own."""
    # Keywords are read from the functions, so that no list has to be kept up to date.
    own = {*inspect.signature(function).parameters, *inspect.signature(generate).parameters}
    classes = METHODS.values()
    of_methods = {field.name for method in classes for field in dataclasses.fields(method)}
    for name in given:
        if name in ("samples", "progress"):
            raise ValueError(f"{function.__name__} takes no {name}; generate does")
        near = [_ELSEWHERE[name]] if name in _ELSEWHERE else difflib.get_close_matches(name, own, 1)
        if near and name not in own | of_methods:
            raise ValueError(f"{function.__name__} takes no {name!r}; did you mean {near[0]!r}?")


@typing.overload
def stream(model: Model, prompts: bytes | str, **request) -> Iterator[str]: ...


@typing.overload
def stream(
    model: Model, prompts: Sequence[bytes | str], **request
) -> Iterator[tuple[int, str]]: ...


def stream(
    model: Model,
    prompts: bytes | str | Sequence[bytes | str],
    *,
    every: int = _EVERY,
    errors: str = "replace",
    batch: int = 64,
    seeds: Seeds = 0,
    **request,
) -> Iterator[Any]:
    """Continues prompts and yields their texts as they are generated, in whole UTF-8 characters.

    Args:
      model: as in `generate`.
      prompts: as in `generate`, or a single prompt.
      every: number of rounds after which the output is fetched.
      errors: how bytes that are not UTF-8 are handled, as in `bytes.decode`.
      batch: maximum number of rows that are decoded together. Rows that have ended are refilled.
      seeds: as in `generate`.
      **request: the other keywords of `generate`.

    Yields:
      Pieces of text, which together are the text of the continuation. If there is a list of
      prompts, each comes as a pair with the index of its prompt.

    Raises:
      ValueError: as in `generate`; or, once all rows have ended, the model's logits turned NaN or
        infinite.
    """
    _check_names(stream, request)
    alone = isinstance(prompts, bytes | bytearray | str)
    asked = requests.all_of(prompts, seeds)
    if every < 1 or batch < 1:
        raise ValueError(f"every and batch must be at least 1, got {every} and {batch}")
    engine = Engine.of(model, len(asked), min(batch, len(asked)), **request)
    try:
        codecs.lookup_error(errors)
    except LookupError as unknown:  # else it is raised only where bytes are not UTF-8
        raise ValueError(f"errors: {unknown}") from None
    for each in asked:
        engine.capacity(each)  # raises if it fits into none
    rows = engine.rows(min(batch, len(asked)))
    new = functools.partial(codecs.getincrementaldecoder("utf-8"), errors)

    def pieces():
        characters = [new() for _ in asked]
        sent = [0] * len(asked)
        broken = ""
        for result in in_rows(engine, Queue(asked), rows, rounds=every):
            index, finished = result.index, result.stop != stopping.REASONS[stopping.RUNNING]
            known = len(result.bytes) - (0 if finished else engine.held_back(index))
            known = max(sent[index], known)
            piece = characters[index].decode(result.bytes[sent[index] : known], final=finished)
            sent[index] = known
            if piece:
                yield piece if alone else (index, piece)
            if result.stop == stopping.REASONS[stopping.NOT_FINITE]:
                where = "" if alone else f"prompt {index}: "
                broken = f"{where}the model's logits after {known} bytes are NaN or infinite"
        if broken:
            raise ValueError(f"{broken}; check its weights")

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

    Finished rows are refilled with the next prompts, an eighth of the batch at once, so that a
    single long row does not idle the others. Prompt i has seed `seeds + i`. At one buffer size and
    batch size, its result does not depend on when it ran or on the other prompts in its batch. A
    prompt that does not fit into the current buffers waits until the batch has drained, and then
    starts a batch with larger ones.

    Args:
      model: as in `generate`. On a mesh, each batch shard refills its own rows.
      prompts: as in `generate`, but any iterable.
      batch: number of rows that are decoded together.
      seeds: seed of the first prompt.
      **request: the other keywords of `generate`.

    Yields:
      One result per prompt, in the order in which they finish.

    Raises:
      ValueError: as in `generate`. A bad prompt is reported once the rows before it have finished.
    """
    _check_names(generate_many, request)
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    engine = Engine.of(model, 1, batch, **request)
    if batch % engine.parts:
        raise ValueError(
            f"a batch of {batch} rows does not divide among {engine.parts} parts of the mesh"
        )
    if not isinstance(seeds, int | np.integer):
        raise ValueError("generate_many takes one number as seeds; prompt i has seeds + i")
    strings = vocab.strings("prompts", prompts)

    def asked():
        for index, prompt in enumerate(strings):
            (one,) = requests.all_of([prompt], int(seeds) + index)
            yield one._replace(index=index)

    return in_rows(engine, Queue(asked()), batch)


def turns(
    model: Model, texts: Iterable[bytes | str], *, seeds: int | np.integer = 0, **request
) -> Iterator[Result]:
    """Continues a conversation: appends one text after another, and continues after each.

    The caches are kept, so that a turn takes the time of its own bytes. Each turn is continued as
    `generate` would continue all of the text before it: the texts, and what was written after them,
    stop strings included. An EOS that ended a turn is not part of it. When a text outgrows its
    buffers, it is prefilled again in buffers of twice the size.

    Args:
      model: as in `generate`.
      texts: what to append. The next one is taken when the result before it has been used.
      seeds: seed of the conversation.
      **request: the other keywords of `generate`.

    Yields:
      The result of each turn.

    Raises:
      ValueError: as in `generate`; or there is no text, once the first result is requested.
    """
    _check_names(turns, request)
    engine = Engine.of(model, **request)
    (begin,) = requests.all_of([b""], seeds)
    return _turns(engine, begin, vocab.strings("texts", texts))


def _turns(engine: Engine, whole: Request, texts: Iterable[bytes | str]) -> Iterator[Result]:
    empty = [None] * (engine.rows(1) - 1)
    decoding, size = None, 0
    for index, text in enumerate(texts):
        more = vocab.encode(text, bos=False)
        whole = whole._replace(ids=whole.ids + more)
        if decoding is None or not more or not engine.fits(whole, size):
            size = engine.capacity(whole)
            decoding = engine.start([whole, *empty], capacity=size)
        else:
            decoding = engine.append(decoding, [whole._replace(ids=more), *empty])
        decoding = engine.advance(decoding)
        whole = whole._replace(ids=engine.text(decoding, 0))
        yield dataclasses.replace(engine.results(decoding, {0: 0})[0], index=index)
    if decoding is None:
        raise ValueError("there is no text to continue")
