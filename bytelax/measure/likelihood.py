"""How likely a model thinks given bytes, behind given bytes."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode.sampling import Sampling, byte_law
from bytelax.long_reductions import compiler_options
from bytelax.model import Model

_SMALLEST = 64  # ids; texts are padded to powers of two from here, so programs are shared


class Scored(NamedTuple):
    """A continuation under a model.

    Attributes:
      log_prob: sum over its bytes, nats.
      greedy: whether each byte is the model's likeliest.
    """

    log_prob: float
    greedy: bool


def continuations(
    model: Model, pairs: Sequence[tuple[bytes, bytes]], *, batch: int = 8
) -> list[Scored]:
    """Scores the second text of each pair behind the first, which may be empty.

    The law is that of plain decoding at temperature 1: bytes and EOS, no other special.

    Args:
      model: any; a BLT trained for blocks is read causally.
      pairs: context and continuation.
      batch: texts that are scored together, of those that are about as long.

    Raises:
      ValueError: a pair beyond the model's context.
    """
    texts = []
    for context, continuation in pairs:
        ids = vocab.encode(context + continuation)
        if len(ids) > model.config.max_bytes:
            raise ValueError(
                f"{len(ids) - 1} bytes exceed the model's context of {model.config.max_bytes - 1}"
            )
        texts.append((ids, len(ids) - len(continuation)))
    scored: list[Scored] = [Scored(0.0, True)] * len(texts)
    order = sorted(range(len(texts)), key=lambda index: len(texts[index][0]))
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        longest = len(texts[rows[-1]][0])
        capacity = max(_SMALLEST, 1 << (longest - 1).bit_length())
        ids = np.full((batch, min(capacity, model.config.max_bytes)), vocab.BOE, np.int32)
        bounds = np.ones((2, batch), np.int32)  # no byte of the rows that fill up the last batch
        for row, index in enumerate(rows):
            text, begin = texts[index]
            ids[row, : len(text)] = text
            bounds[:, row] = begin, len(text)
        log_probs, greedy = _compiled()(model.module, model.params, jnp.asarray(ids), *bounds)
        for row, index in enumerate(rows):
            scored[index] = Scored(float(log_probs[row]), bool(greedy[row]))
    return scored


def fitting(model: Model, context: bytes, room: int) -> bytes:
    """The end of a context, as much as leaves room for so many bytes behind it."""
    kept = max(model.config.max_bytes - 1 - room, 0)
    return context[max(len(context) - kept, 0) :]


@functools.cache
def _compiled():
    return jax.jit(_score, static_argnums=0, compiler_options=compiler_options())


def _score(
    module, params, ids: Int[Array, "B S"], begin: Int[Array, " B"], end: Int[Array, " B"]
) -> tuple[Float[Array, " B"], Bool[Array, " B"]]:
    logits = Model(module, params).logits(ids)[:, :-1]
    law = byte_law(logits, Sampling.of(len(ids)))
    target = ids[:, 1:]
    place = jnp.arange(1, ids.shape[1])
    counts = (place >= begin[:, None]) & (place < end[:, None])
    each = jnp.take_along_axis(law, target[..., None], axis=-1)[..., 0]
    likeliest = law.argmax(-1) == target
    return jnp.where(counts, each, 0).sum(1), (likeliest | ~counts).all(1)
