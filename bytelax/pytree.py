"""Frozen dataclasses of arrays that JAX transformations see through."""

import dataclasses
import typing

import jax

T = typing.TypeVar("T")


@typing.dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and a pytree; fields marked static are part of its structure.

    Its fields are not type-checked: JAX fills pytrees with whatever it maps over.
    """
    cls.__no_type_check__ = True
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True)(cls))


def static() -> typing.Any:
    """A field that is not data."""
    return dataclasses.field(metadata={"static": True})
