"""The module class of each config class.

A new architecture needs a module, a decoding target, and an entry here.
"""

from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig

Config = BLTConfig | ByteLMConfig
Module = BLT | ByteLM

_MODULES = {BLTConfig: BLT, ByteLMConfig: ByteLM}


def module_of(config: Config) -> Module:
    """Creates the Flax module that a config describes."""
    return _MODULES[type(config)](config)
