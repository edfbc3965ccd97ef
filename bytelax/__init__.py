"""bytelax: byte-level language models in JAX, with lossless speculative decoding.

The names below, and submodules, are imported when they are first used, so that the command line
starts at once.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names for editors and type checkers
    from bytelax import decode as decode
    from bytelax import vocab as vocab
    from bytelax.loading import load as load
    from bytelax.loading import load_patcher as load_patcher
    from bytelax.model import Model as Model
    from bytelax.pods.configs import MeshConfig as MeshConfig
    from bytelax.running import Output as Output
    from bytelax.running import Result as Result
    from bytelax.running import Statistics as Statistics
    from bytelax.running import generate as generate
    from bytelax.running import generate_many as generate_many
    from bytelax.running import stream as stream
    from bytelax.running import turns as turns
    from bytelax.scoring import Patcher as Patcher
    from bytelax.scoring import Patches as Patches
    from bytelax.scoring import Score as Score
    from bytelax.scoring import Scores as Scores
    from bytelax.scoring import patches as patches
    from bytelax.scoring import score as score
    from bytelax.scoring import score_many as score_many
    from bytelax.training import train as train

__version__ = "0.1.0"

_HOMES = {
    "MeshConfig": "pods.configs",
    "Model": "model",
    "Output": "running",
    "Patcher": "scoring",
    "Patches": "scoring",
    "Result": "running",
    "Score": "scoring",
    "Scores": "scoring",
    "Statistics": "running",
    "decode": "",
    "generate": "running",
    "generate_many": "running",
    "load": "loading",
    "load_patcher": "loading",
    "patches": "scoring",
    "score": "scoring",
    "score_many": "scoring",
    "stream": "running",
    "train": "training",
    "turns": "running",
    "vocab": "",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if home := _HOMES.get(name):
        value = getattr(importlib.import_module(f"bytelax.{home}"), name)
        return globals().setdefault(name, value)
    if not name.startswith("_") and importlib.util.find_spec(f"bytelax.{name}"):
        return importlib.import_module(f"bytelax.{name}")
    raise AttributeError(f"module 'bytelax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
