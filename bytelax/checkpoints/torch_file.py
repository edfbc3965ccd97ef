"""Reads PyTorch checkpoint files; needs torch to be installed."""

import pathlib

import ml_dtypes
import numpy as np

from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.tensors import Tensor


def read_file(path: pathlib.Path) -> dict[str, Tensor]:
    """Maps the tensors of a `.pth` file into memory without executing any code in the file.

    Raises:
      CheckpointError: torch is not installed, or the file holds no state dict.
    """
    try:
        import torch
    except ImportError:
        raise CheckpointError(
            f"{path} is a PyTorch file: pip install 'bytelax[meta]' to read it, or convert it to "
            "safetensors"
        ) from None
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # torch raises RuntimeError, UnpicklingError, EOFError, KeyError, ...
        raise CheckpointError(f"{path} is not a PyTorch checkpoint; download it again") from None
    stored = stored.get("model", stored) if isinstance(stored, dict) else {}
    tensors = {
        name: _tensor(x, f"{path}: {name}")
        for name, x in stored.items()
        if isinstance(x, torch.Tensor)
    }
    if not tensors:
        raise CheckpointError(f"{path} holds no state dict under 'model'")
    return tensors


def _tensor(x, source):
    import torch

    narrow = x.dtype == torch.bfloat16
    try:
        dtype = np.dtype(ml_dtypes.bfloat16 if narrow else str(x.dtype).removeprefix("torch."))
    except TypeError:
        raise CheckpointError(f"{source} is {x.dtype}; convert it to float32 first") from None

    def rows(start, stop):
        part = x[start:stop].contiguous()
        return (part.view(torch.uint16) if narrow else part).numpy().view(dtype)

    return Tensor(tuple(x.shape), dtype, rows)
