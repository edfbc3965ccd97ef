"""Which model a command works on."""

import dataclasses
import json

import tyro

from bytelax.checkpoints.config_fields import OVERRIDES
from bytelax.loading import load
from bytelax.model import Model
from bytelax.pods.sharding import MeshConfig


@dataclasses.dataclass(frozen=True)
class LoadFlags:
    """How a model is loaded."""

    dtype: str | None = None
    """Cast the weights to float32, bfloat16 or float16; the entropy model stays float32."""
    override: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A config field that a file cannot hold, as name=value; may be given several times."""

    def load(self, location: str, *, mesh: MeshConfig | None = None) -> Model:
        overrides = dict(map(_assignment, self.override))
        return load(location, dtype=self.dtype, mesh=mesh, **overrides)


def _assignment(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--override takes name=value, got {text!r}")
    if name not in OVERRIDES:
        raise ValueError(f"--override knows no {name!r}; it takes {', '.join(OVERRIDES)}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
