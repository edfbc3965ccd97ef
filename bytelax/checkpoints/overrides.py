"""The config fields that a load may replace."""

from typing import Any

import jax
import numpy as np

from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.models.configs import ModelConfig, PatchingConfig

OVERRIDES = {  # flat name -> path of the field in the config
    "monotonicity": "patching.monotonicity",
    "patching_threshold": "patching.threshold",
    "patching_threshold_add": "patching.threshold_add",
    "patching_mode": "patching.mode",
    "patching_stride": "patching.stride",
    "max_patch_length": "patching.max_patch_length",
    "mask_documents": "mask_documents",
    "max_bytes": "max_bytes",
}


def override(config: ModelConfig, changes: dict) -> ModelConfig:
    """Replaces fields of a config, by the flat names in `OVERRIDES`.

    `mask_documents` is set for the entropy model too. An entropy model that the patching mode does
    not use is removed from the config.

    Raises:
      CheckpointError: a name is unknown or does not apply to this config, which also may refuse a
        value.
    """
    fields = plain.to_fields(config)
    valid = {x: place for x, place in OVERRIDES.items() if place.partition(".")[0] in fields}
    for name, value in changes.items():
        if name not in valid:
            raise CheckpointError(f"cannot override {name!r} here; what can be: {', '.join(valid)}")
        group, _, field = valid[name].rpartition(".")
        value = _plain(value)
        (fields[group] if group else fields)[field] = value
        if field == "mask_documents" and fields.get("patcher"):
            fields["patcher"][field] = value
    changed = plain.from_fields(type(config), fields, "override")
    return changed.without_idle_patcher()


def patcher_of(config: ModelConfig, changes: dict) -> tuple[ModelConfig, PatchingConfig]:
    """The config with changes as in `override`, and the rule by which it cuts texts into patches.

    A byte transformer has no rule of its own: it gets the default one, with the changes.

    Raises:
      CheckpointError: as in `override`, or the BLT does not use an entropy model.
    """
    if config.patching is not None:
        changed = override(config, changes)
        assert changed.patching is not None
        if changed.patcher is None:
            raise CheckpointError(
                f"this BLT cuts patches by {changed.patching.mode} and has no entropy model"
            )
        return changed, changed.patching
    own: dict[str, Any] = {}
    patching = plain.to_fields(PatchingConfig())
    for name, value in changes.items():
        group, _, field = OVERRIDES.get(name, name).rpartition(".")
        (patching if group == "patching" else own)[field if group else name] = _plain(value)
    rule = plain.from_fields(PatchingConfig, patching, "override")
    if rule.mode != "entropy":
        raise CheckpointError(f"patches by {rule.mode} need no entropy model")
    return override(config, own), rule


def _plain(value):
    """A number of Python for a scalar of NumPy or JAX."""
    array = isinstance(value, np.generic | np.ndarray | jax.Array)
    return value.item() if array and value.ndim == 0 else value
