"""The decoding methods: each one drafter and one acceptance rule."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bytelax.decode import acceptance
from bytelax.decode.acceptance import Acceptance
from bytelax.decode.drafters import (
    BlockDiffusion,
    Drafter,
    DraftModel,
    Empty,
    Lookup,
    PastBoundary,
    by_batch,
    stop_below,
)
from bytelax.decode.sampling import Sampling
from bytelax.decode.target import Target
from bytelax.decode.unmasking import Confidence, EntropyBound, OneStep, Unmasking
from bytelax.loading import load
from bytelax.model import Model
from bytelax.models.blt import BLT
from bytelax.targets import target_for


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


# How many bytes a round drafts: a number, or by the number of rows that are still running, as
# `{rows: bytes}`; see `by_batch`.
Length = int | Mapping[int, int]


def ar(model: Model, law: Sampling, *, capacity: int, window: int = 1) -> Method:
    """Plain autoregressive decoding, one byte a round."""
    longest = model.config.max_bytes
    if not 1 <= window <= longest:
        raise ValueError(f"window must lie in 1..{longest}, got {window}")
    return _verified(_target(model, capacity, window - 1), Empty(window - 1), law)


def blt_s(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_length: Length = 8,
    latent: str = "reuse",
    draft_layers: int | None = None,
    min_confidence: float | None = None,
    verify: str = "byte",
) -> Method:
    """A BLT's local decoder drafts past its patch, a full pass verifies. Lossless."""
    _needs_blt(model, "blt-s")
    _one_of("latent", latent, "reuse", "refresh")
    target = _target(model, capacity, _longest(draft_length, model))
    drafter = PastBoundary(target, target.width - 1, latent=latent, depth=draft_layers)
    drafter = _of_length(drafter, draft_length, min_confidence)
    return _verified(target, drafter, law, verify)


def blt_d(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    block_size: int = 8,
    unmask: str = "confidence",
    alpha: float | None = None,
    gamma: float | None = None,
    open_patch: str = "latest",
) -> Method:
    """Blocks of masked bytes, filled by the decoder and kept as they are. Not lossless."""
    _needs_blocks(model, "blt-d", block_size)
    _one_of("open_patch", open_patch, "latest", "truncated", "finish")
    target = dataclasses.replace(
        _target(model, capacity, block_size),
        ahead=block_size,
        open_patch="truncated" if open_patch == "truncated" else "latest",
    )
    unmasking = unmasking_rule(unmask, alpha=alpha, gamma=gamma)
    drafter = BlockDiffusion(
        target, block_size, unmasking, latent="ahead", finish=open_patch == "finish"
    )
    return Method(target, drafter, acceptance.take_all, block_size, lossless=False)


def blt_dv(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    block_size: int = 8,
    unmask: str = "one-step",
    alpha: float | None = None,
    gamma: float | None = None,
    latent: str = "reuse",
    min_confidence: float | None = None,
    verify: str = "byte",
) -> Method:
    """Blocks of masked bytes, filled by the decoder and verified by the same model. Lossless."""
    _needs_blocks(model, "blt-dv", block_size)
    _one_of("latent", latent, "reuse", "refresh")
    target = _target(model, capacity, block_size)
    unmasking = unmasking_rule(unmask, alpha=alpha, gamma=gamma)
    drafter = BlockDiffusion(target, block_size, unmasking, latent=latent)
    return _verified(target, _of_length(drafter, block_size, min_confidence), law, verify)


def lookup(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_length: Length = 8,
    shortest: int = 4,
    longest: int = 16,
    verify: str = "byte",
) -> Method:
    """Copy what followed the last time the text ended like this. Lossless."""
    target = _target(model, capacity, _longest(draft_length, model))
    drafter = Lookup(target.width - 1, shortest, longest, model.config.vocab_size)
    return _verified(target, _of_length(drafter, draft_length), law, verify)


def small_draft_model(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_model: Model,
    draft_length: Length = 4,
    min_confidence: float | None = None,
    verify: str = "byte",
) -> Method:
    """A smaller model drafts, byte by byte. Lossless."""
    target = _target(model, capacity, _longest(draft_length, model))
    if draft_model.config.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"the draft model has {draft_model.config.vocab_size} ids, the model "
            f"{model.config.vocab_size}; they must be of one vocabulary"
        )
    small = target_for(draft_model.module, capacity=capacity, width=target.width)
    drafter = DraftModel(small, target.width - 1)
    drafter = _of_length(drafter, draft_length, min_confidence)
    return _verified(target, drafter, law, verify, draft_model.params)


def unmasking_rule(name: str, *, alpha: float | None, gamma: float | None) -> Unmasking:
    """The rule called "confidence", "entropy", "entropy-minus-max" or "one-step".

    Raises:
      ValueError: no such rule, or a bound that it does not have.
    """
    _one_of("unmask", name, "confidence", "entropy", "entropy-minus-max", "one-step")
    if alpha is not None and name != "confidence":
        raise ValueError(f"alpha belongs to unmask='confidence', not to {name!r}")
    if gamma is not None and not name.startswith("entropy"):
        raise ValueError(f"gamma belongs to unmask='entropy', not to {name!r}")
    if name == "one-step":
        return OneStep()
    if name == "confidence":
        return Confidence() if alpha is None else Confidence(alpha)
    rule = "sum" if name == "entropy" else "sum-minus-max"
    return EntropyBound(bounded=rule) if gamma is None else EntropyBound(gamma, rule)


def lossless_rule(law: Sampling, verify: str = "byte") -> Acceptance:
    """The rule that leaves the output law unchanged at this temperature."""
    _one_of("verify", verify, "byte", "block")
    if law.greedy:
        return acceptance.greedy
    return acceptance.rejection if verify == "byte" else acceptance.block_verification


def _verified(target, drafter, law, verify="byte", params=()) -> Method:
    """A method that leaves the output law as it is."""
    accept = lossless_rule(law, verify)
    return Method(target, drafter, accept, target.width - 1, lossless=True, params=params)


def _target(model: Model, capacity: int, draft_length: int) -> Target:
    return target_for(model.module, capacity=capacity, width=draft_length + 1)


def _of_length(drafter: Drafter, length: Length, min_confidence: float | None = None) -> Drafter:
    if min_confidence is not None:
        drafter = stop_below(drafter, min_confidence)
    return by_batch(drafter, length) if isinstance(length, Mapping) else drafter


def _longest(length: Length, model: Model) -> int:
    """The longest draft: at least a byte, and no more than the model can hold."""
    numbers = list(length.values()) if isinstance(length, Mapping) else [length]
    limit = model.config.max_bytes - 1
    if not numbers or min(numbers) < 0 or not 1 <= max(numbers) <= limit:
        raise ValueError(f"draft_length must lie in 1..{limit}, got {length}")
    return max(numbers)


def _one_of(option: str, value: str, *known: str) -> None:
    if value not in known:
        raise ValueError(f"{option} {value!r} is not one of {', '.join(known)}")


def _needs_blt(model: Model, method: str) -> None:
    if not isinstance(model.module, BLT):
        raise ValueError(f"method {method!r} needs a Byte Latent Transformer, not a byte model")


def _needs_blocks(model: Model, method: str, block_size: int) -> None:
    _needs_blt(model, method)
    trained = model.config.block_size
    if not trained:
        raise ValueError(
            f"method {method!r} needs a model trained to fill in masked bytes (`bytelax train "
            "blt-d`); this one was not"
        )
    if not 1 <= block_size <= trained:
        raise ValueError(f"the model was trained on blocks of up to {trained}, got {block_size}")


# Called with the model, the law, and `capacity`, the longest text that its buffers must hold; what
# else a factory takes are the options of its method.
METHODS: dict[str, Callable[..., Method]] = {
    "ar": ar,
    "blt-s": blt_s,
    "blt-d": blt_d,
    "blt-dv": blt_dv,
    "lookup": lookup,
    "draft-model": small_draft_model,
}


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The options that a method takes."""
    parameters = inspect.signature(METHODS[name]).parameters
    return {
        option: parameter
        for option, parameter in parameters.items()
        if option not in ("model", "law", "capacity")
    }


def settle(name: str, options: dict) -> dict:
    """The options as `build` takes them: None left out, a draft model loaded from where it lies.

    Raises:
      ValueError: no such method, an option that it does not take, or one that it needs.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; there are: {', '.join(METHODS)}")
    given = {option: value for option, value in options.items() if value is not None}
    known = options_of(name)
    for option in given:
        if option not in known:
            raise ValueError(
                f"method {name!r} takes no {option!r}; its options: {', '.join(known)}"
            )
    for option, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and option not in given:
            raise ValueError(f"method {name!r} needs {option}")
    if isinstance(given.get("draft_model"), str | Path):
        given["draft_model"] = load(given["draft_model"])
    return given


def build(name: str, model: Model, law: Sampling, *, capacity: int, **options) -> Method:
    """The method called `name`, for texts of up to `capacity` bytes, with options from `settle`.

    Raises:
      ValueError: an option out of range.
    """
    return METHODS[name](model, law, capacity=capacity, **options)
