"""What the loop needs to know of a method, and what the factories of methods share."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bytelax.decode import acceptance
from bytelax.decode.acceptance import Acceptance
from bytelax.decode.drafters import Drafter, by_batch, padded, stop_adaptively, stop_below
from bytelax.decode.sampling import Sampling
from bytelax.decode.target import Target
from bytelax.model import Model
from bytelax.models.blt import BLT

# How many bytes a round drafts: a number, or by the number of rows that are still running, as
# `{rows: bytes}`; see `by_batch`.
Length = int | Mapping[int, int]

# Where a draft ends: behind the first byte that its drafter thinks less probable than this number,
# or than one that "adaptive" adapts from round to round; see `stop_below` and `stop_adaptively`.
# A string other than that is an error that `of_length` explains.
Threshold = float | str

# Of Draft & Verify (arXiv 2309.08168): where an adapted threshold begins.
_GREEDY_START, _SAMPLED_START = 0.8, 0.5


@dataclasses.dataclass(frozen=True)
class Method:
    """What the loop needs to know of a method.

    Attributes:
      target: the model, in windows of K + 1 bytes.
      drafter: proposes up to `draft_length` bytes a round.
      accept: judges them.
      draft_length: K.
      lossless: whether the output is that of plain decoding.
      params: the drafter's parameters, if it has any of its own.
    """

    target: Target
    drafter: Drafter
    accept: Acceptance
    draft_length: int
    lossless: bool
    params: Any = ()


def lossless_rule(law: Sampling, verify: str = "byte") -> Acceptance:
    """The rule that leaves the output law unchanged at this temperature."""
    one_of("verify", verify, "byte", "block")
    if law.greedy:
        return acceptance.greedy
    return acceptance.rejection if verify == "byte" else acceptance.block_verification


def verified(target, drafter, law, verify="byte", params=()) -> Method:
    """A method that leaves the output law as it is."""
    accept, width = lossless_rule(law, verify), target.width - 1
    return Method(target, padded(drafter, width), accept, width, lossless=True, params=params)


def target_of(model: Model, capacity: int, drafted: int, window: int | None = None) -> Target:
    """The model in windows for so many drafted bytes and the pending one, or in wider ones."""
    longest = model.config.max_bytes
    if window is not None and not drafted < window <= longest:
        drafts = f": a round drafts {drafted} bytes" if drafted else ""
        raise ValueError(f"window must lie in {drafted + 1}..{longest}, got {window}{drafts}")
    width = drafted + 1 if window is None else window
    return model.module.target(capacity=capacity, width=width)


def of_length(
    drafter: Drafter, length: Length, min_confidence: Threshold | None, law: Sampling
) -> Drafter:
    """The drafter with its drafts no longer than is asked for.

    Raises:
      ValueError: a word other than "adaptive".
    """
    if isinstance(length, Mapping):
        drafter = by_batch(drafter, length)
    if min_confidence is None:
        return drafter
    if min_confidence == "adaptive":
        return stop_adaptively(drafter, _GREEDY_START if law.greedy else _SAMPLED_START)
    if isinstance(min_confidence, str):
        raise ValueError(f"min_confidence is a number or 'adaptive', got {min_confidence!r}")
    return stop_below(drafter, min_confidence)


def longest_draft(model: Model, length: Length) -> int:
    """The longest draft: at least a byte, and no more than the model can hold."""
    limit = model.config.max_bytes - 1
    if not 1 <= longest(length) <= limit:
        raise ValueError(f"draft_length must lie in 1..{limit}, got {length}")
    return longest(length)


def longest(length: Length) -> int:
    return max(length.values(), default=0) if isinstance(length, Mapping) else length


def one_of(option: str, value: str, *known: str) -> None:
    if value not in known:
        raise ValueError(f"{option} {value!r} is not one of {', '.join(known)}")


def needs_blt(model: Model, method: str) -> None:
    if not isinstance(model.module, BLT):
        raise ValueError(f"method {method!r} needs a Byte Latent Transformer, not a byte model")
