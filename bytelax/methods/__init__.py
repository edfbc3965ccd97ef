"""The decoding methods: each one drafter and one acceptance rule."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path

from bytelax.decode.drafters import Drafter
from bytelax.decode.sampling import Sampling
from bytelax.loading import load
from bytelax.methods import any_model, blt, byte_lm
from bytelax.methods.method import Length, Method, lossless_rule
from bytelax.model import Model

__all__ = [
    "METHODS",
    "Factory",
    "Length",
    "Method",
    "build",
    "lossless_rule",
    "options_of",
    "settle",
]

# Called with the model, the law, and `capacity`, the longest text that its buffers must hold; what
# else a factory takes are the options of its method.
Factory = Callable[..., Method]

METHODS: dict[str, Factory] = {
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


def factory_of(method: str | Drafter | Factory) -> Factory:
    """The factory of the method called so, or of a drafter of one's own; a factory is its own.

    Raises:
      ValueError: no such method.
    """
    if isinstance(method, Drafter):
        return functools.partial(any_model.own_drafter, method)
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; there are: {', '.join(METHODS)}")
    return METHODS[method]


def options_of(method: str | Drafter | Factory) -> dict[str, inspect.Parameter]:
    """The options that a method takes."""
    parameters = inspect.signature(factory_of(method)).parameters
    return {
        option: parameter
        for option, parameter in parameters.items()
        if option not in ("model", "law", "capacity")
    }


def settle(method: str | Drafter | Factory, options: dict) -> dict:
    """The options as `build` takes them: None left out, a draft model loaded from where it lies.

    Raises:
      ValueError: no such method, an option that it does not take, or one that it needs.
    """
    given = {option: value for option, value in options.items() if value is not None}
    known = options_of(method)
    name = method if isinstance(method, str) else getattr(method, "__name__", type(method).__name__)
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


def build(
    method: str | Drafter | Factory, model: Model, law: Sampling, *, capacity: int, **options
) -> Method:
    """A method for texts of up to `capacity` bytes, with options from `settle`.

    Raises:
      ValueError: an option out of range.
    """
    return factory_of(method)(model, law, capacity=capacity, **options)
