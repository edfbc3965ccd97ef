"""What a checkpoint's config can be, and what of it may be changed on the way in."""

import dataclasses

from bytelax import config as plain
from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.layout import Config
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig

KINDS = {"blt": BLTConfig, "byte-lm": ByteLMConfig}
OVERRIDES = {  # flat name: where it lies in the config
    "monotonicity": "patching.monotonicity",
    "patching_threshold": "patching.threshold",
    "patching_threshold_add": "patching.threshold_add",
    "patching_mode": "patching.mode",
    "patching_stride": "patching.stride",
    "max_patch_length": "patching.max_patch_length",
    "mask_documents": "mask_documents",
    "max_bytes": "max_bytes",
}


def kind(config: Config) -> str:
    """ "blt" or "byte-lm"."""
    return next(name for name, cls in KINDS.items() if isinstance(config, cls))


def override(config: Config, changes: dict) -> Config:
    """The config with the fields of `OVERRIDES` replaced, by flat name.

    `mask_documents` is also the patcher's. A patcher that the patching mode has no use for is
    dropped, with its parameters.

    Raises:
      CheckpointError: an unknown name.
      ConfigError: a value that the config refuses.
    """
    valid = {name: place for name, place in OVERRIDES.items() if _has(config, place)}
    fields = plain.to_fields(config)
    for name, value in changes.items():
        if name not in valid:
            raise CheckpointError(f"cannot override {name!r} here; what can be: {', '.join(valid)}")
        group, _, field = valid[name].rpartition(".")
        (fields[group] if group else fields)[field] = value
        if field == "mask_documents" and fields.get("patcher"):
            fields["patcher"][field] = value
    return without_idle_patcher(plain.from_fields(type(config), fields, "override"))


def without_idle_patcher(config: Config) -> Config:
    """The config less an entropy model that its patching mode never asks."""
    if isinstance(config, BLTConfig) and config.patching.mode != "entropy":
        return dataclasses.replace(config, patcher=None)
    return config


def _has(config, place):
    return hasattr(config, place.split(".")[0])
