"""Turns the flags for decoding into keywords of `bytelax.generate`."""

from bytelax import methods
from bytelax.commands.method_flags import MethodFlags
from bytelax.decode.sampling import Sampling
from bytelax.loading import load
from bytelax.model import Model


def keywords(flags: MethodFlags, dtype: str | None) -> dict:
    """Returns keyword arguments of `bytelax.generate`, and loads a draft model.

    Args:
      flags: the flags.
      dtype: dtype of the draft model's weights; None keeps the stored dtype.

    Raises:
      ValueError: the method does not take an option, or not this value.
    """
    found = flags.options
    if "draft_model" in found:
        found["draft_model"] = load(found["draft_model"], dtype=dtype)
    return found | {
        name: getattr(flags, name) for name in ("method", "temperature", "top_k", "top_p")
    }


def check(model: Model, method: str, options: dict, **sampling) -> None:
    """Raises ValueError at once if a method cannot decode with these options.

    Args:
      model: the model.
      method: name of the method.
      options: options of the method.
      **sampling: sampling parameters, as in `Sampling.of`.
    """
    Sampling.of(1, **sampling)
    try:
        methods.build(method, model, **options)
    except TypeError as error:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise ValueError(f"method {method!r} with {given}: {error}") from None
