"""The decoding methods: each one drafter and one acceptance rule."""

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bytelax.decode import acceptance
from bytelax.decode.acceptance import Acceptance
from bytelax.decode.drafters import Drafter, DraftModel, Empty, Lookup
from bytelax.decode.sampling import Sampling
from bytelax.loading import load
from bytelax.model import Model
from bytelax.targets import target_for


@dataclasses.dataclass(frozen=True)
class Method:
    """What the loop needs to know of a method.

    Attributes:
      drafter: proposes up to `draft_length` bytes a round.
      accept: judges them.
      draft_length: K; windows are K + 1 bytes wide.
      lossless: whether the output is that of plain decoding.
      params: the drafter's parameters, if it has any of its own.
    """

    drafter: Drafter
    accept: Acceptance
    draft_length: int
    lossless: bool
    params: Any = dataclasses.field(default_factory=dict)


def ar(model: Model, law: Sampling, *, capacity: int, window: int = 1) -> Method:
    """Plain autoregressive decoding, one byte a round."""
    longest = model.config.max_bytes
    if not 1 <= window <= longest:
        raise ValueError(f"window must lie in 1..{longest}, got {window}")
    return Method(Empty(window - 1), lossless_rule(law), window - 1, lossless=True)


def lookup(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_length: int = 8,
    shortest: int = 4,
    longest: int = 16,
) -> Method:
    """Copy what followed the last time the text ended like this. Lossless."""
    check_draft_length(draft_length, model)
    drafter = Lookup(draft_length, shortest, longest, model.config.vocab_size)
    return Method(drafter, lossless_rule(law), draft_length, lossless=True)


def small_draft_model(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_model: Model,
    draft_length: int = 4,
) -> Method:
    """A smaller model drafts, byte by byte. Lossless."""
    check_draft_length(draft_length, model)
    if draft_model.config.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"the draft model has {draft_model.config.vocab_size} ids, the model "
            f"{model.config.vocab_size}; they must be of one vocabulary"
        )
    target = target_for(draft_model.module, capacity=capacity, width=draft_length + 1)
    return Method(
        DraftModel(target, draft_length),
        lossless_rule(law),
        draft_length,
        lossless=True,
        params=draft_model.params,
    )


def lossless_rule(law: Sampling) -> Acceptance:
    """The rule that leaves the output law unchanged at this temperature."""
    return acceptance.greedy if law.greedy else acceptance.rejection


def check_draft_length(draft_length: int, model: Model) -> None:
    """A round drafts at least a byte, and no more than the model can hold.

    Raises:
      ValueError: it does not.
    """
    longest = model.config.max_bytes - 1
    if not 1 <= draft_length <= longest:
        raise ValueError(f"draft_length must lie in 1..{longest}, got {draft_length}")


# Called with the model, the law, and `capacity`, the longest text that its buffers must hold; what
# else a factory takes are the options of its method.
METHODS: dict[str, Callable[..., Method]] = {
    "ar": ar,
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
