"""Writes a checkpoint of random weights, of which only a block is ever in memory."""

import json
import math
import pathlib

import ml_dtypes
import numpy as np

from bytelax.checkpoints import huggingface, layout, safetensors_file
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.blt import BLTConfig

_DRAWN = 1 << 22  # numbers that are drawn; they come again and again


def write(directory: pathlib.Path, config: BLTConfig) -> None:
    """In the layout of transformers: the hash table in float32, the rest in bfloat16."""
    numbers = np.random.default_rng(0).standard_normal(2 * _DRAWN, np.float32)

    def tensor(path, part):
        scale = path.endswith("/scale")
        kind = np.float32 if path == layout.HASH_TABLE else ml_dtypes.bfloat16
        deviation = 0.02 if len(part.shape) < 2 else part.shape[1] ** -0.5
        own = np.ones if scale else None
        width = math.prod(part.shape[1:])

        def rows(start, stop):
            if own is not None:
                return np.ones((stop - start, *part.shape[1:]), kind)
            flat = np.resize(numbers[start % _DRAWN :], (stop - start) * width) * deviation
            return flat.astype(kind).reshape(stop - start, *part.shape[1:])

        return Tensor(part.shape, np.dtype(kind), rows)

    tensors = {
        part.name: tensor(path, part)
        for path, parameter in layout.parameters(config).items()
        for part in parameter.slices
    }
    directory.mkdir(parents=True, exist_ok=True)
    fields = huggingface.to_config_json(config)
    (directory / "config.json").write_text(json.dumps(fields))
    safetensors_file.write_file(directory / safetensors_file.SINGLE, tensors)
