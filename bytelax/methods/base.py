"""What named methods share: their table, checks of their options, and how they are built."""

from __future__ import annotations

import dataclasses
import difflib
import numbers
import reprlib
import types
import typing
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from bytelax.decode.acceptance import Acceptance, Lossless
    from bytelax.decode.drafters import Drafter
    from bytelax.decode.method import Method
    from bytelax.model import Model

METHODS: dict[str, type[Named]] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    """A decoding method with a name; its fields are its options.

    A subclass with a `name` is in `METHODS`. It says what drafts, by `_drafter`.

    Attributes:
      name: the name, as in `bytelax.generate(method=)`.

    Raises:
      ValueError: an option has a value of another kind.
    """

    name: ClassVar[str]

    def __init_subclass__(cls):
        if "name" in vars(cls):
            METHODS[cls.name] = cls

    def __post_init__(self):
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            _check(field.name, getattr(self, field.name), hints[field.name])

    def build(self, model: Model) -> Method:
        """Returns the method that decodes with a model.

        Args:
          model: the target model. A draft model is put on its mesh, and loaded if given by name.

        Raises:
          ValueError: the model cannot be decoded with in this way.
        """
        from bytelax import decode  # only now, so that options are read without JAX
        from bytelax.decode.drafters import TargetError

        try:
            return self.loaded(model)._method(decode, model)
        except TargetError as error:
            raise TargetError(self.name, error.needs) from None
        except ValueError as error:
            raise ValueError(f"{error} (method {self.name!r})") from None

    def loaded(self, model: Model) -> Named:
        """Returns the same with a draft model that is loaded and on the mesh of `model`."""
        return self

    @property
    def params(self) -> Any:
        """The parameters of the drafter's own model, once it is loaded."""
        return ()

    def _method(self, decode: types.ModuleType, model: Model) -> Method:
        return decode.Method(model.target(), self._drafter(decode, model))

    def _drafter(self, decode: types.ModuleType, model: Model) -> Drafter:
        raise NotImplementedError


def _check(name: str, value: Any, hint: Any) -> None:
    """Raises ValueError if a value is not of the type of an option."""
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    kinds = typing.get_args(hint) if union else (hint,)
    choices = [word for kind in kinds for word in typing.get_args(kind) if isinstance(word, str)]
    if choices and isinstance(value, str) and value not in choices:
        raise ValueError(f"{name} {value!r} is not one of {', '.join(choices)}")
    if not any(_fits(value, kind) for kind in kinds):
        raise ValueError(f"{name} cannot be {reprlib.repr(value)}")


def _fits(value, kind):
    """Whether a value is of a type. Integers must fit into 32 bits."""
    if value is None or isinstance(value, bool):
        return kind is type(value)
    if kind in (bool, types.NoneType):
        return False
    if typing.get_origin(kind) is tuple:
        whole = typing.get_args(kind)[0]
        return isinstance(value, tuple | list) and all(_fits(part, whole) for part in value)
    if kind is int:
        return isinstance(value, numbers.Integral) and -(2**31) <= int(value) < 2**31
    if kind is float:
        return isinstance(value, numbers.Real)
    return True  # words, models and functions are checked where they are used


def meant(word: str, known: Iterable[str]) -> str:
    """Returns a question that offers the nearest known word; empty if none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else ""


def find(name: str) -> type[Named]:
    """Returns the class of a named method; raises ValueError if there is none."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    if hasattr(name, "propose"):
        raise ValueError(f"wrap a drafter: decode.Method(model.target(), drafter), got {name!r}")
    hint = f"{meant(name, METHODS)} " if isinstance(name, str) else ""
    raise ValueError(f"unknown method {name!r}; {hint}there are: {', '.join(METHODS)}")


def named(name: str, /, **options: Any) -> Named:
    """Returns the method of a name with its options.

    Args:
      name: a key of `METHODS`.
      **options: fields of the method; None selects the default.

    Raises:
      ValueError: there is no such method, it does not take an option, an option is missing or has
        a value of another kind.
    """
    method = find(name)
    fields = {field.name: field for field in dataclasses.fields(method)}
    options = {option: value for option, value in options.items() if value is not None}
    for option in options.keys() - fields.keys():
        raise ValueError(f"method {name!r} takes no {option!r}; its options: {', '.join(fields)}")
    for option, field in fields.items():
        if option not in options and field.default is dataclasses.MISSING:
            raise ValueError(f"method {name!r} needs {option}")
    return method(**options)


def build(
    method: str | Named | Method,
    model: Model,
    /,
    *,
    accept: Acceptance | Lossless | None = None,
    window: int | None = None,
    **options: Any,
) -> tuple[Method, Any]:
    """Builds a method for a model; returns it with the parameters of its drafter.

    Args:
      method: a name, a method with its options, or a `Method`, which is checked and returned.
      model: the target model. A draft model is put on the same mesh, and loaded if given as a path.
      accept: acceptance rule to use in place of the method's own.
      window: number of bytes to pad every verified window to; None leaves it as it is.
      **options: options of a method that is given by name; None selects the default.

    Raises:
      ValueError: there is no such method, it does not take an option, or an option is missing or
        out of range.
    """
    from bytelax.decode.drafters import Empty
    from bytelax.decode.method import Method

    params: Any = ()
    given = {option: value for option, value in options.items() if value is not None}
    if isinstance(method, Named | Method) and given:
        raise ValueError(f"{', '.join(given)}: only methods given by name take options")
    if isinstance(method, Method):
        if getattr(method.target, "module", None) not in (None, model.device_shard.module):
            raise ValueError("this Method was built for another model")
    else:
        chosen = method if isinstance(method, Named) else named(method, **given)
        chosen = chosen.loaded(model)
        method, params = chosen.build(model), chosen.params
    if window is not None:
        method = dataclasses.replace(method, window=window)
    if accept is not None:
        method = dataclasses.replace(method, accept=accept)
        if type(method.drafter) is Empty:
            raise ValueError("accept judges drafts, and this method drafts nothing")
    return method, params
