"""The type of dataclass fields whose default is computed from the other fields."""

import typing

if typing.TYPE_CHECKING:
    T = typing.TypeVar("T")

    class Filled(typing.Generic[T]):
        """A field that takes T or None, and holds T once `__post_init__` has replaced None."""

        def __get__(self, instance: object, owner: type) -> T: ...
        def __set__(self, instance: object, value: T | None) -> None: ...

else:
    Filled = typing.Optional

UNFILLED: typing.Any = None
