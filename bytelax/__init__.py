"""bytelax: byte-level language models, decoded several times faster without changing a byte."""

from bytelax import decode, vocab
from bytelax.generation import Output, Result, generate, generate_many, stream
from bytelax.loading import load
from bytelax.model import Model
from bytelax.pods.sharding import MeshConfig
from bytelax.statistics import Statistics

__all__ = [
    "MeshConfig",
    "Model",
    "Output",
    "Result",
    "Statistics",
    "decode",
    "generate",
    "generate_many",
    "load",
    "stream",
    "vocab",
]
