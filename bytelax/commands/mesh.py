"""The flag `--mesh data=8,tensor=4`, which sets all axes of a mesh."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from bytelax.pods.configs import MeshConfig

_AXES = [field.name for field in dataclasses.fields(MeshConfig)]


def _parse(words: Sequence[str]) -> MeshConfig:
    sizes = {}
    for part in words[0].split(","):
        axis, _, size = part.partition("=")
        if axis not in _AXES or axis in sizes or not size.isdecimal():
            raise ValueError(f"{part!r} is not AXIS=NUMBER; the axes are {', '.join(_AXES)}")
        sizes[axis] = int(size)
    return MeshConfig(**sizes)


def _spell(mesh: MeshConfig) -> list[str]:
    return [",".join(f"{axis}={getattr(mesh, axis)}" for axis in _AXES)]


MeshFlag = Annotated[
    MeshConfig,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="AXIS=NUMBER,...",
        instance_from_str=_parse,
        is_instance=lambda value: isinstance(value, MeshConfig),
        str_from_instance=_spell,
    ),
]
