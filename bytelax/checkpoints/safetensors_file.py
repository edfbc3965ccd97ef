"""Reads and writes safetensors files in blocks of rows, so that weights are in memory only once.

Files are read with the `safetensors` package, which can write only tensors that are in memory as a
whole. The format is simple (a length, a JSON header, and the bytes of the tensors), so `write_file`
writes it directly.

A matrix may be stored as int8, with a float32 scale for each of its rows in the tensor
`NAME.scale`. It reads as float32, and the state dict does not show how it is stored.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import safetensors

from bytelax.checkpoints import config
from bytelax.checkpoints.config import CheckpointError, one_line
from bytelax.checkpoints.tensors import Tensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_INT8, _SCALE = np.dtype(np.int8), ".scale"
_NAMES = {dtype: name for name, dtype in _DTYPES.items()} | {_INT8: "I8"}


def read_directory(directory: pathlib.Path) -> dict[str, Tensor]:
    """Opens the tensors of `model.safetensors`, or of the shards that its index lists.

    If both are there, the former is read, as in transformers.

    Raises:
      CheckpointError: a file is missing or truncated, or not a safetensors file.
    """
    index, single = directory / INDEX, directory / SINGLE
    if single.exists():
        return read_file(single)
    if not index.exists():
        raise CheckpointError(f"{directory} has no {SINGLE}, and no {INDEX} that lists its shards")
    shard_of = config.from_fields(_Index, config.read_json(index), str(index)).weight_map
    shards = {shard: read_file(directory / shard) for shard in sorted(set(shard_of.values()))}
    tensors = {}
    for name, shard in shard_of.items():
        if name not in shards[shard]:
            raise CheckpointError(f"{directory / shard} lacks {name}, which {INDEX} puts there")
        tensors[name] = shards[shard][name]
    return tensors


def read_file(path: pathlib.Path) -> dict[str, Tensor]:
    """Opens the tensors of one file; only its header is read.

    Raises:
      CheckpointError: the file does not exist, is truncated or too long, or is not a safetensors
        file, or a dtype is not a float of 16, 32 or 64 bits.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            entries = {name: (x.get_dtype(), tuple(x.get_shape())) for name, x in found.items()}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not a safetensors file, or not a whole one; download it again: "
            f"{one_line(error)}"
        ) from None
    tensors, scales = {}, set()
    for name, (kind, shape) in entries.items():
        scale = name + _SCALE
        if kind == "I8" and entries.get(scale) == ("F32", (shape[0],)):
            scales.add(scale)
            rows = functools.partial(_scaled_rows, path, name)
            tensors[name] = Tensor(shape, np.dtype(np.float32), rows)
        elif kind in _DTYPES:
            tensors[name] = Tensor(shape, _DTYPES[kind], functools.partial(_rows, path, name))
        else:
            raise CheckpointError(
                f"{path}: {name} is stored as {kind}; convert the checkpoint to F32, BF16 or F16"
            )
    return {name: tensor for name, tensor in tensors.items() if name not in scales}


def as_int8(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rounds the matrices of the layers to int8, each row to multiples of its largest entry / 127.

    Embeddings, output layers, norms and entropy models, whose thresholds would move, stay as they
    are.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if len(tensor.shape) != 2 or ".layers." not in name or "patcher" in name:
            found[name] = tensor
            continue
        matrix = np.asarray(tensor.whole(), np.float32)
        scale = np.abs(matrix).max(1) / np.float32(127)
        scale[scale == 0] = 1
        values = np.rint(matrix / scale[:, None]).astype(np.int8)
        found[name], found[name + _SCALE] = Tensor.of(values), Tensor.of(scale)
    return found


def write_file(path: pathlib.Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors to one file, block by block.

    Raises:
      CheckpointError: a tensor has an unsupported dtype.
    """
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}  # transformers requires the format
    offset = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise CheckpointError(f"{name} is {tensor.dtype}; cast it to float32 or bfloat16")
        size = tensor.dtype.itemsize * int(np.prod(tensor.shape, dtype=np.int64))
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            for _, block in tensor.blocks():
                file.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Index:
    """The index of a sharded checkpoint: the file of each tensor."""

    weight_map: dict[str, str]
    metadata: dict | None = None


def _scaled_rows(path, name, start, stop):
    scale = _rows(path, name + _SCALE, start, stop)
    return _rows(path, name, start, stop) * scale[:, None]


def _rows(path, name, start, stop):
    # The file is opened for one block only: pages that were read count as memory until it closes.
    with safetensors.safe_open(path, framework="numpy") as file:
        return file.get_slice(name)[start:stop]
