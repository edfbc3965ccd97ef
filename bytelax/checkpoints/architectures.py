"""The architectures: for each, its config, the module that computes it and what decodes with it."""

import dataclasses
from collections.abc import Callable
from typing import Any

from bytelax.decode.target import Rewindable
from bytelax.decode.targets.blt import BLTTarget
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import Config

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


def target_of(module: Module) -> Rewindable:
    """Creates the decoding target of a module, for a `decode.Method`."""
    return of(module.config).target(module)
