"""Reads and writes checkpoints in the layouts of bytelax and transformers, and reads Meta's."""

from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.heads import read_heads, write_heads
from bytelax.checkpoints.huggingface import check_transformers
from bytelax.checkpoints.layout import quantized
from bytelax.checkpoints.reading import check_quantize, detect, read, read_config, read_patcher
from bytelax.checkpoints.writing import Layout, write

__all__ = [
    "CheckpointError",
    "Layout",
    "check_quantize",
    "check_transformers",
    "detect",
    "quantized",
    "read",
    "read_config",
    "read_heads",
    "read_patcher",
    "write",
    "write_heads",
]
