"""Which module each config is of. A new architecture is a line here, a module and a target."""

from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig

Config = BLTConfig | ByteLMConfig
Module = BLT | ByteLM

_MODULES = {BLTConfig: BLT, ByteLMConfig: ByteLM}


def module_of(config: Config) -> Module:
    """The module of a config, for `init` and `apply`."""
    return _MODULES[type(config)](config)
