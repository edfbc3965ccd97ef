"""Likelihoods of given continuations of given contexts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bytelax import scoring
from bytelax.model import Model
from bytelax.windows import Piece, capacity, tell_pieces


class Scored(NamedTuple):
    """The likelihood of a continuation under a model.

    Attributes:
      log_prob: sum of the log-probabilities of its bytes, in nats.
      greedy: whether each byte is the model's likeliest.
    """

    log_prob: float
    greedy: bool


def continuations(
    model: Model, pairs: Sequence[tuple[bytes, bytes]], *, batch: int = 8
) -> list[Scored]:
    """Returns the likelihood of each continuation given its context, which may be empty.

    The distribution is that of `bytelax.score`.

    Args:
      model: any model; a BLT trained for block diffusion is evaluated causally.
      pairs: context and continuation.
      batch: number of texts, of similar length, that are scored together.

    Raises:
      ValueError: a pair exceeds the model's context.
    """
    most = model.config.max_bytes - 1
    pieces = []
    for context, continuation in pairs:
        text = context + continuation
        if len(text) > most:
            raise ValueError(f"{len(text)} bytes exceed the model's context of {most}")
        pieces.append(Piece(text, len(context), capacity(len(text), most)))
    told = tell_pieces(scoring.likelihoods(model), pieces, batch=batch)
    return [
        Scored(float(log_probs.sum(dtype=np.float64)), bool(likeliest.all()))
        for _, (log_probs, likeliest) in told
    ]


def fitting(model: Model, context: bytes, room: int) -> bytes:
    """Cuts the beginning of a context so that `room` more bytes fit into the model's context."""
    kept = max(model.config.max_bytes - 1 - room, 0)
    return context[max(len(context) - kept, 0) :]
