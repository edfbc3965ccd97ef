"""Loads the model that a command names."""

import json

from bytelax import loading
from bytelax.checkpoints.config_fields import OVERRIDES
from bytelax.commands.load_flags import DecodeLoadFlags, LoadFlags, Overrides
from bytelax.model import Model
from bytelax.pods.configs import MeshConfig


def load(location: str, flags: LoadFlags, *, mesh: MeshConfig | None = None) -> Model:
    """Loads a model.

    Args:
      location: a bundled model, a directory, a training run or a hub id.
      flags: how to load it.
      mesh: mesh to load it on; None loads it on one device.
    """
    quantize = flags.quantize if isinstance(flags, DecodeLoadFlags) else None
    return loading.load(
        location,
        dtype=flags.dtype,
        mesh=mesh,
        heads=flags.heads,
        quantize=quantize,
        **overrides(flags),
    )


def overrides(flags: Overrides) -> dict[str, object]:
    """Returns the config fields to replace as keywords of `bytelax.load`."""
    return dict(map(_assignment, flags.override))


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
