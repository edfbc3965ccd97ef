"""How a command decodes: flags made from the options of the named methods."""

import dataclasses
from typing import Annotated, Any, Literal, get_args

import tyro

from bytelax import methods
from bytelax.decode.sampling import Sampling
from bytelax.loading import load
from bytelax.model import Model
from bytelax.options import Option, option_of


def _flags() -> dict[str, tuple[Any, Option, list[str]]]:
    """Every option of a named method, as the first method that has it says."""
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
    more = {"metavar": option.metavar} if option.metavar else {}
    flag = Annotated[kind | None, tyro.conf.arg(help=help, **more)]
    return name, flag, dataclasses.field(default=None)


_Options = dataclasses.make_dataclass("_Options", map(_field, _OPTIONS), frozen=True)


@dataclasses.dataclass(frozen=True)
class MethodFlags(_Options):
    """How to decode, and the law that is sampled."""

    method: str = "ar"
    """How to decode; see `bytelax methods`."""
    temperature: float = 0.0
    """0 takes the likeliest byte."""
    top_k: int = 0
    """Sample among that many likeliest bytes; 0 among all."""
    top_p: float = 1.0
    """Sample among the likeliest bytes that hold this much probability."""

    def keywords(self, dtype: str | None) -> dict:
        """As `generate` takes them.

        Args:
          dtype: of a draft model's weights.
        """
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        keywords = {name: _parsed(name, value) for name, value in fields.items()}
        if self.draft_model is not None:
            keywords["draft_model"] = load(self.draft_model, dtype=dtype)
        return keywords


def check(model: Model, method: str, options: dict, **law) -> None:
    """Raises at once what decoding so would raise: ValueError, for an option of any bad kind."""
    Sampling.of(1, **law)
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
