"""The decoding methods: each one drafter and one acceptance rule."""

import inspect
from collections.abc import Callable
from pathlib import Path

from bytelax.decode.sampling import Sampling
from bytelax.loading import load
from bytelax.methods import any_model, blt, byte_lm
from bytelax.methods.method import Length, Method, lossless_rule
from bytelax.model import Model

__all__ = ["METHODS", "Length", "Method", "build", "lossless_rule", "options_of", "settle"]

# Called with the model, the law, and `capacity`, the longest text that its buffers must hold; what
# else a factory takes are the options of its method.
METHODS: dict[str, Callable[..., Method]] = {
    "ar": any_model.ar,
    "blt-s": blt.blt_s,
    "blt-d": blt.blt_d,
    "blt-dv": blt.blt_dv,
    "lookup": any_model.lookup,
    "draft-model": any_model.small_draft_model,
    "spectr": byte_lm.spectr,
    "early-exit": byte_lm.early_exit,
    "layer-skip": byte_lm.layer_skip,
    "medusa": byte_lm.medusa,
    "two-byte": byte_lm.two_byte,
    "composed": byte_lm.composed,
    "eagle": byte_lm.eagle,
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
