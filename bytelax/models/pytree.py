"""Frozen dataclasses that are JAX pytrees, and the choice between rows of two trees."""

import dataclasses
import typing

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

T = typing.TypeVar("T")


def static(**default: typing.Any) -> typing.Any:
    """Declares a field of a `pytree` class that is static metadata instead of data.

    Args:
      **default: `default`, as in `dataclasses.field`.
    """
    return dataclasses.field(metadata={"static": True}, **default)


@typing.dataclass_transform(frozen_default=True, field_specifiers=(static,))
def pytree(cls: type[T]) -> type[T]:
    """Class decorator that makes `cls` a frozen dataclass and a pytree.

    Fields declared with `static` are part of the tree structure. The types of fields are not
    checked, because JAX builds pytrees with arbitrary leaves, such as shapes or shardings.
    """
    cls.__no_type_check__ = True  # type: ignore[attr-defined]  # as `typing.no_type_check` does
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


def keys(path: tuple) -> list[typing.Any]:
    """Returns the keys of dicts on the path to a leaf, and None for what is not a dict."""
    return [x.key if isinstance(x, jax.tree_util.DictKey) else None for x in path]


def where_rows(rows: Bool[Array, " B"], new: T, old: T) -> T:
    """Takes `new` in these rows and `old` in the others, in every leaf of two trees [B, ...]."""
    return jax.tree.map(
        lambda new, old: jnp.where(rows.reshape(-1, *(1,) * (old.ndim - 1)), new, old), new, old
    )
