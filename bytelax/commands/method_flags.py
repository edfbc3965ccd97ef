"""Flags for decoding, generated from the options of the named methods."""

import dataclasses
from typing import Annotated, Any, Literal, get_args

import tyro

from bytelax import methods
from bytelax.decode.sampling import Sampling
from bytelax.loading import load
from bytelax.model import Model
from bytelax.options import Option, option_of


def _flags() -> dict[str, tuple[Any, Option, list[str]]]:
    """All options of the named methods: type, description, and the methods that have them.

    Type and description are those of the first method that has the option.
    """
    found: dict[str, tuple[Any, Option, list[str]]] = {}
    for name in methods.METHODS:
        for option, parameter in methods.options_of(name).items():
            kind = get_args(parameter.annotation)[0]
            found.setdefault(option, (kind, option_of(parameter), []))[2].append(name)
    return found


_OPTIONS = _flags()


def _field(name: str) -> tuple:
    kind, option, of = _OPTIONS[name]
    help = f"{option.help} ({', '.join(of)})"
    if option.choices:
        kind = Literal[option.choices]
    if option.parse or name == "draft_model":
        kind = str
    more: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {}
    flag: Any = Annotated[kind | None, tyro.conf.arg(help=help, **more)]
    return name, flag, dataclasses.field(default=None)


_Options: Any = dataclasses.make_dataclass("_Options", map(_field, _OPTIONS), frozen=True)


@dataclasses.dataclass(frozen=True)
class MethodFlags(_Options):
    """The decoding method with its options, and the sampling parameters."""

    method: str = "ar"
    """Decoding method; see `bytelax methods`."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    top_k: int = 0
    """Sample only among this number of most likely bytes; 0 turns this off."""
    top_p: float = 1.0
    """Sample only among the most likely bytes with this total probability."""

    def keywords(self, dtype: str | None) -> dict:
        """Converts the flags to keyword arguments of `bytelax.generate`, and loads a draft model.

        Args:
          dtype: dtype of the draft model's weights; None keeps the stored dtype.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        keywords = {name: _parsed(name, value) for name, value in fields.items()}
        if self.draft_model is not None:
            keywords["draft_model"] = load(self.draft_model, dtype=dtype)
        return keywords


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


def _parsed(name: str, value: Any) -> Any:
    option = _OPTIONS[name][1] if name in _OPTIONS else None
    if option is None or option.parse is None or value is None:
        return value
    try:
        return option.parse(value)
    except ValueError:
        flag = "--" + name.replace("_", "-")
        raise ValueError(f"{flag} takes {option.takes}, got {value!r}") from None
