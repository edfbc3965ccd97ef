"""The architectures: config, module and target of each, and the fields that a load may override."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.decode.target import Rewindable
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import Config
from bytelax.models.patching import PatchingConfig
from bytelax.systems import trained
from bytelax.targets.blt import BLTTarget
from bytelax.targets.byte_lm import ByteLMTarget

Module = BLT | ByteLM


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One kind of model.

    Attributes:
      name: what `config.json` calls it in bytelax's own layout.
      config: class of the configs.
      module: class of the Flax modules; takes a config.
      target: makes the decoding target of a module.
    """

    name: str
    config: type
    module: Callable[[Any], Module]
    target: Callable[[Any], Rewindable]


ARCHITECTURES = (
    Architecture("blt", BLTConfig, BLT, BLTTarget),
    Architecture("byte-lm", ByteLMConfig, ByteLM, ByteLMTarget),
)


def of(config: Config) -> Architecture:
    """Returns the architecture of a config."""
    return next(each for each in ARCHITECTURES if each.config is type(config))


def module_of(config: Config) -> Module:
    """Creates the Flax module that a config describes."""
    return of(config).module(config)


def shapes(module: Module) -> dict:
    """Returns the shapes of every parameter of a model, those of its heads included."""
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    own = jax.eval_shape(module.init, jax.eval_shape(jax.random.key, 0), ids)["params"]
    heads = trained.shapes(module.config)
    return own | ({"heads": heads} if heads else {})


def logical_axes(module: Module) -> dict:
    """Returns the logical axes of every parameter of a model, those of its heads included."""
    heads = trained.logical_axes(module.config)
    return module.logical_axes() | ({"heads": heads} if heads else {})


def target_of(module: Module) -> Rewindable:
    """Creates the decoding target of a module, for a `decode.Method`."""
    return of(module.config).target(module)


KINDS = {each.name: each.config for each in ARCHITECTURES}
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


def kind(config: Config) -> str:
    """The name of a config's class in `KINDS`: "blt" or "byte-lm"."""
    return of(config).name


def override(config: Config, changes: dict) -> Config:
    """Replaces fields of a config, by the flat names in `OVERRIDES`.

    `mask_documents` is set in the patcher's config too. A patcher that the patching mode does not
    use is removed from the config.

    Raises:
      CheckpointError: a name is unknown or does not apply to this config, which also may refuse a
        value.
    """
    valid = {name: place for name, place in OVERRIDES.items() if _has(config, place)}
    fields = plain.to_fields(config)
    for name, value in changes.items():
        if name not in valid:
            raise CheckpointError(f"cannot override {name!r} here; what can be: {', '.join(valid)}")
        group, _, field = valid[name].rpartition(".")
        value = _plain(value)
        (fields[group] if group else fields)[field] = value
        if field == "mask_documents" and fields.get("patcher"):
            fields["patcher"][field] = value
    return without_idle_patcher(plain.from_fields(type(config), fields, "override"))


def patcher_of(config: Config, changes: dict) -> tuple[Config, PatchingConfig]:
    """The config with changes as in `override`, and the rule by which it cuts texts into patches.

    A byte transformer has no rule of its own: it gets the default one, which the changes are of.

    Raises:
      CheckpointError: as in `override`, or a BLT that asks no entropy model.
    """
    if isinstance(config, BLTConfig):
        changed = override(config, changes)
        assert isinstance(changed, BLTConfig)
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


def without_idle_patcher(config: Config) -> Config:
    """Removes the entropy model from a config whose patching mode does not use it."""
    if isinstance(config, BLTConfig) and config.patching.mode != "entropy":
        return dataclasses.replace(config, patcher=None)
    return config


def _plain(value):
    """A number of Python for a scalar of NumPy or JAX."""
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value


def _has(config, place):
    return hasattr(config, place.split(".")[0])
