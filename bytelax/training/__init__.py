"""Training: data, objectives, optimizers and the training loop.

The names below are imported when they are first used, because configs are read without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bytelax.training.train_loop import Trained as Trained
    from bytelax.training.train_loop import initialise as initialise
    from bytelax.training.train_loop import train as train

__all__ = ["Trained", "initialise", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("bytelax.training.train_loop"), name)
    raise AttributeError(f"module 'bytelax.training' has no attribute {name!r}")
