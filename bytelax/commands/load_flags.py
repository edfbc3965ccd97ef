"""Flags that decide how a command loads its model."""

import dataclasses
import json

import tyro

from bytelax.checkpoints.config_fields import OVERRIDES
from bytelax.loading import load
from bytelax.model import Model
from bytelax.pods.mesh_config import MeshConfig


@dataclasses.dataclass(frozen=True)
class Overrides:
    """Flags that replace config fields."""

    override: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A config field that a file cannot hold, as name=value; may be given several times."""

    def to_dict(self) -> dict[str, object]:
        """Returns the fields as keywords of `load`."""
        return dict(map(_assignment, self.override))


@dataclasses.dataclass(frozen=True)
class LoadFlags(Overrides):
    """Flags that decide how a model is loaded."""

    dtype: str | None = None
    """Cast the weights to float32, bfloat16 or float16; the entropy model stays float32."""
    heads: str | None = None
    """Directory of heads for the model, as `bytelax train heads` leaves them in OUT/heads."""

    def load(self, location: str, *, mesh: MeshConfig | None = None) -> Model:
        """Loads a model with these flags.

        Args:
          location: a bundled model, a directory or a hub id.
          mesh: mesh to load it on; None loads it on one device.
        """
        return load(location, dtype=self.dtype, mesh=mesh, heads=self.heads, **self.to_dict())


def _assignment(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--override takes name=value, got {text!r}")
    if name not in OVERRIDES:
        raise ValueError(f"--override knows no {name!r}; it takes {', '.join(OVERRIDES)}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
