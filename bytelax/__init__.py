"""bytelax: byte-level language models in JAX, with lossless speculative decoding.

The names below, and submodules, are imported when they are first used, so that the command line
starts at once.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bytelax import decode, vocab
    from bytelax.generation import generate, generate_many, stream
    from bytelax.loading import load, load_patcher
    from bytelax.model import Model
    from bytelax.patcher import Patcher, Patches, patches
    from bytelax.pods.sharding import MeshConfig
    from bytelax.results import Output, Result
    from bytelax.scoring import Score, Scores, score, score_many
    from bytelax.statistics import Statistics

__version__ = "0.1.0"
__all__ = [
    "MeshConfig",
    "Model",
    "Output",
    "Patcher",
    "Patches",
    "Result",
    "Score",
    "Scores",
    "Statistics",
    "decode",
    "generate",
    "generate_many",
    "load",
    "load_patcher",
    "patches",
    "score",
    "score_many",
    "stream",
    "vocab",
]
_MODULES = {
    "generation": ("generate", "generate_many", "stream"),
    "loading": ("load", "load_patcher"),
    "model": ("Model",),
    "patcher": ("Patcher", "Patches", "patches"),
    "pods.sharding": ("MeshConfig",),
    "results": ("Output", "Result"),
    "scoring": ("Score", "Scores", "score", "score_many"),
    "statistics": ("Statistics",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"bytelax.{_HOMES[name]}"), name)
        return globals().setdefault(name, value)
    if not name.startswith("_") and importlib.util.find_spec(f"bytelax.{name}"):
        return importlib.import_module(f"bytelax.{name}")
    raise AttributeError(f"module 'bytelax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
