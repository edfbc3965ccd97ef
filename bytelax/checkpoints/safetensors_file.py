"""Safetensors files, read and written by blocks of rows.

The format is a length, a JSON header and the bytes of the tensors. The `safetensors` package maps
the file into memory, where every page touched counts until the file is closed; plain reads into
the caller's arrays keep a 15 GB checkpoint at 15 GB.
"""

import json
import pathlib
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.tensors import Tensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MAX_HEADER = 100 << 20


def read_directory(directory: pathlib.Path) -> dict[str, Tensor]:
    """The tensors of `model.safetensors`, or of the shards its index names.

    Raises:
      CheckpointError: a file is missing, truncated or no safetensors file.
    """
    index = directory / INDEX
    if (directory / SINGLE).exists() or not index.exists():
        return read_file(directory / SINGLE)
    try:
        shard_of = json.loads(index.read_text())["weight_map"]
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{index} is not a safetensors index; download it again") from None
    shards = {}
    for shard in sorted(set(shard_of.values())):
        if not (directory / shard).exists():
            raise CheckpointError(f"{directory} lacks the shard {shard}; download it again")
        shards[shard] = read_file(directory / shard)
    tensors = {}
    for name, shard in shard_of.items():
        if name not in shards[shard]:
            raise CheckpointError(f"{directory / shard} lacks {name}, which {INDEX} puts there")
        tensors[name] = shards[shard][name]
    return tensors


def read_file(path: pathlib.Path) -> dict[str, Tensor]:
    """The tensors of one file. Only the header is read now.

    Raises:
      CheckpointError: no such file, truncated or too long, not safetensors, or a dtype that is not
        a float of 16, 32 or 64 bits.
    """
    if not path.is_file():
        raise CheckpointError(f"{path.parent} has no {path.name}")
    header, start = _header(path)
    size, used = path.stat().st_size, start
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
            kind = entry["dtype"]
            count = int(np.prod(shape, dtype=np.int64))
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{path} is not a safetensors file: {name} is garbled") from None
        if kind not in _DTYPES:
            raise CheckpointError(
                f"{path}: {name} is stored as {kind}; convert the checkpoint to F32, BF16 or F16"
            )
        if end - begin != count * _DTYPES[kind].itemsize:
            raise CheckpointError(f"{path} is not a safetensors file: {name} has the wrong size")
        if start + end > size:
            raise CheckpointError(
                f"{path} is truncated: {name} ends at byte {start + end} and the file has {size}; "
                "download it again"
            )
        tensors[name] = _tensor(path, start + begin, shape, _DTYPES[kind])
        used = max(used, start + end)
    if used < size:
        raise CheckpointError(
            f"{path} is not a safetensors file: {size - used} bytes follow its last tensor; "
            "download it again"
        )
    return tensors


def write_file(path: pathlib.Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes the tensors to one file, block by block.

    Raises:
      CheckpointError: a tensor has a dtype the checkpoints do not use.
    """
    header, offset = {"__metadata__": {"format": "pt"}}, 0  # transformers asks for the format
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
                file.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8))


def _header(path):
    """The JSON header and the position of the first tensor byte."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > _MAX_HEADER:
            raise CheckpointError(f"{path} is not a safetensors file; download it again")
        if 8 + length > size:
            raise CheckpointError(f"{path} is truncated or not safetensors; download it again")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            header = None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} is not a safetensors file; download it again")
    return header, 8 + length


def _tensor(path, position, shape, dtype):
    row_shape = shape[1:]
    row_bytes = dtype.itemsize * int(np.prod(row_shape, dtype=np.int64))

    def rows(start, stop):
        count = (stop - start) * row_bytes
        raw = np.fromfile(path, np.uint8, count, offset=position + start * row_bytes)
        if raw.size != count:
            raise CheckpointError(f"{path} became shorter while it was read; try again")
        return raw.view(dtype).reshape(stop - start, *row_shape)

    return Tensor(shape, dtype, rows)
