"""`load` and `load_patcher`, which read a directory, a hub id or a bundled model."""

import math
import os
from pathlib import Path

import jax
import psutil
from jax.sharding import Mesh, SingleDeviceSharding
from jax.typing import DTypeLike

from bytelax import architectures, checkpoints, compiling
from bytelax.model import Model
from bytelax.models import narrow
from bytelax.pods import sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.scoring.patcher import Patcher

_ASSETS = Path(__file__).parent / "assets"


def load(
    location: str | Path,
    *,
    dtype: DTypeLike | None = None,
    mesh: MeshConfig | Mesh | str | None = None,
    heads: str | Path | None = None,
    quantize: str | None = None,
    **overrides,
) -> Model:
    """Loads a model from a directory, from a model hub, or from those bundled with the package.

    From then on JAX keeps compiled programs, in `~/.cache/bytelax` or in BYTELAX_CACHE, unless it
    already has a cache.

    Args:
      location: name of a bundled model, a directory (Orbax, Hugging Face or Meta layout, or of a
        run of `bytelax train`), or a hub id. A directory with the name of a bundled model takes
        precedence if it holds a config.
      dtype: dtype to cast the weights to, float32, bfloat16 or float16, by name or itself; the
        entropy model stays in float32. None keeps the dtype of the files, and loads bundled models
        in float32. "auto" is the faster one of bfloat16 and float32: the former on accelerators,
        and on a CPU with compiled kernels that has products of bfloat16, or for a model of 20M
        weights or more.
      mesh: devices to decode on, also as text such as "data=8,tensor=4"; None uses one device. The
        batch is sharded over `data` and `fsdp`, and attention heads, hidden units and hash
        embeddings over `tensor`. Every process reads its own shards only.
      heads: directory of heads that were trained for this model, as `bytelax train heads` leaves
        them in `OUT/heads`; they replace the model's own.
      quantize: "int8" loads kernels and the hash table as int8 with a scale for each output or row,
        for decoding and scoring on one device. `dtype` is then the dtype of the activations and of
        all else. What a lossless method preserves is the output of this quantized model.
      **overrides: config fields that a file cannot hold: monotonicity, patching_threshold,
        patching_threshold_add, patching_mode, patching_stride, max_patch_length, mask_documents,
        max_bytes.
        Three more say which ids are bytes in a Llama, Mistral, Qwen2 or Qwen3 that bytelax did not
        write, where its tokenizer files do not: bytes_at, the id of byte 0, after which the others
        follow; bos and eos, the ids of the beginning and the end of a text, or None.

    Raises:
      ValueError: the weights do not fit in memory, `mesh` is not a mesh or needs more devices than
        there are, the model does not divide evenly, or it is to be quantized on a mesh.
      CheckpointError: there is nothing at `location`, or nothing readable, or weights that are NaN
        or infinite; the message says what to do.
    """
    if quantize is not None and mesh is not None:
        raise ValueError(narrow.ONE_DEVICE)
    source = model_directory(location)
    compiling.keep_programs()
    if mesh is None and jax.default_backend() == "cpu":
        compiling.say_without_kernels()
    if _bundled(location):
        dtype = "float32" if dtype is None else dtype  # stored in less, to be small
    mesh = None if mesh is None else sharding.as_mesh(mesh)

    def shardings(config, params):
        found = None
        if mesh is not None:
            axes = architectures.logical_axes(architectures.module_of(config))
            axes = {part: axes[part] for part in params}
            found = sharding.shardings(params, axes, mesh, sharding.DECODE_RULES)
        check_fit(location, params, found)
        return found

    config, params = checkpoints.read(
        source, dtype=dtype, shardings=shardings, quantize=quantize, **overrides
    )
    if heads is not None:
        like = params.get("decoder", params)["norm"]["scale"].dtype
        config, params["heads"] = checkpoints.read_heads(
            Path(heads), config, dtype=like, shardings=shardings
        )
    return Model(architectures.module_of(config), params, mesh)


def quantized(model: Model, kind: str = "int8") -> Model:
    """Returns a model in memory as `load(..., quantize=kind)` would have read it.

    Raises:
      ValueError: another kind than "int8", a model that is int8 already, or one on a mesh.
    """
    checkpoints.check_quantize(kind)
    if model.quantized:
        raise ValueError("the model is int8 already")
    if model.mesh is not None:
        raise ValueError(narrow.ONE_DEVICE)
    params = checkpoints.quantized(model.config, model.params)
    return Model(model.module, params, model.mesh)


def load_patcher(location: str | Path, **overrides) -> Patcher:
    """Loads an entropy model: a byte transformer, or only that of a BLT.

    Args:
      location: as in `load`.
      **overrides: as in `load`. Those of patching apply to a byte transformer too, whose files
        hold no patching rule; the default is that of the released models.

    Raises:
      CheckpointError: as in `load`, or the BLT has no entropy model.
      ValueError: the run has no model yet.
    """
    return Patcher.from_config(*checkpoints.read_patcher(model_directory(location), **overrides))


def model_directory(location: str | Path) -> str | Path:
    """Resolves the name of a bundled model, or the directory of a training run, to the model's.

    Other locations are returned unchanged.

    Raises:
      CheckpointError: a name alone, of no bundled model and no directory.
      ValueError: the run has no model yet.
    """
    if not isinstance(location, str | os.PathLike):
        raise checkpoints.CheckpointError(
            f"a model is named by text or a path, not by {type(location).__name__}"
        )
    directory = Path(location)
    if bundled := _bundled(location):
        return bundled
    if str(location) and directory.name == str(location) and not directory.exists():
        names = ", ".join(sorted(path.name for path in _ASSETS.iterdir() if _holds_model(path)))
        raise checkpoints.CheckpointError(
            f"there is no directory {location}; the bundled models are {names}"
        )
    if (directory / "config.toml").exists() and not (directory / "config.json").exists():
        if not (directory / "model").exists():
            raise ValueError(
                f"{location} holds a run without a model: it runs, or was killed; the command that "
                "started it goes on with it"
            )
        return directory / "model"
    return location


def _bundled(location) -> Path | None:
    """The directory of the bundled model of this name, unless another model is meant."""
    if str(location) not in {path.name for path in _ASSETS.iterdir() if _holds_model(path)}:
        return None
    return None if _holds_model(Path(location)) else _ASSETS / str(location)


def _holds_model(path: Path) -> bool:
    """Whether a path holds a model, so that it takes precedence over a bundled one."""
    return any((path / name).exists() for name in ("config.json", "params.json"))


def check_fit(location: object, params: dict, shardings: dict | None) -> None:
    """Raises an error if parameters need more memory than is free on the devices of this process.

    On accelerators the limit is that of each device. On a CPU it is the free memory of the machine
    with its swap, which all devices share. Caches and activations are not counted.

    Args:
      location: name of the model, for the error.
      params: tree of `jax.ShapeDtypeStruct`, in the dtypes that are read.
      shardings: tree of the parameters' shardings; None puts all of them on one device.

    Raises:
      ValueError: the parameters do not fit; the message says what they need and what there is.
    """
    leaves = jax.tree.leaves(params)
    if shardings is None:
        places = [SingleDeviceSharding(jax.local_devices()[0])] * len(leaves)
    else:
        places = jax.tree.leaves(shardings)
    free, where, sharing = _free(list(places[0].addressable_devices))
    needed = sharing * sum(
        math.prod(place.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf, place in zip(leaves, places, strict=True)
    )
    if needed > free:
        # int8 is for one device.
        less = "a mesh of several devices, bfloat16 or int8"
        if shardings is not None:
            less = "a mesh of more devices or bfloat16"
        raise ValueError(
            f"the weights of {location} take {_gb(needed)}, and {_gb(free)} of {where} are free; "
            f"use a machine with more, {less}"
        )


def _free(devices: list[jax.Device]) -> tuple[int, str, int]:
    """Returns the number of free bytes, what they are called, and how many devices share them."""
    stats = devices[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"], f"memory on {devices[0]}", 1
    free = psutil.virtual_memory().available + psutil.swap_memory().free
    return free, "memory", len(devices)


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
