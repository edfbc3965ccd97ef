"""The setting that `bytelax tune` found fastest for a model, a machine and a batch size."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax

from bytelax import compiling
from bytelax.decode.method import Method
from bytelax.models.pytree import keys
from bytelax.options import METHODS, Tuned
from bytelax.pods import global_arrays
from bytelax.systems.fitting import Model


@dataclasses.dataclass(frozen=True)
class Setting:
    """A method and its options.

    Attributes:
      method: name of a lossless method; "ar" if nothing was faster than plain decoding.
      options: its options; `draft_model` is a location.
      draft_loading: keywords of `load` that the draft model was loaded with.
      speed: measured speed-up over plain decoding.

    Raises:
      ValueError: there is no lossless method of this name.
    """

    method: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    draft_loading: dict[str, Any] = dataclasses.field(default_factory=dict)
    speed: float = 1.0

    def __post_init__(self):
        if self.method not in METHODS or not METHODS[self.method].lossless:
            raise ValueError(f"there is no lossless method {self.method!r}")


def build(options: Tuned, model: Model) -> Method:
    """Refuses, since a draft model may have to be loaded."""
    raise ValueError("bytelax.methods.build reads what was tuned")


def read(model: Model, rows: int) -> Setting | None:
    """Returns the setting of a model for batches of this size; None if it was not tuned for them.

    Raises:
      ValueError: the file is not one that `write` has written.
    """
    path = path_of(model, rows)
    try:
        return Setting(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise ValueError(f"{path} is not what `bytelax tune` writes now: run it again") from None


def write(model: Model, rows: int, setting: Setting) -> Path:
    """Keeps a setting for batches of this size, and returns where."""
    path = path_of(model, rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(dataclasses.asdict(setting)) + "\n")
    os.replace(partial, path)
    return path


def path_of(model: Model, rows: int) -> Path:
    """Returns the file of a setting in the user's cache, for the devices that hold the model."""
    devices = jax.tree.leaves(model.held)[0].devices()
    kind = next(iter(devices)).device_kind.replace(" ", "-")
    machine = f"{compiling.machine()}-{kind}-{len(devices)}"
    return compiling.user_cache() / "tuned" / machine / f"{digest(model)}-{rows}.json"


def digest(model: Model) -> str:
    """Returns a digest of a model's configuration, dtypes and scales of its norms.

    The scales stand for all weights, which need not be read: unlike others, they are never laid out
    for kernels. Two trained models of one shape differ in them. If two models had the same digest,
    both would still write their own bytes, perhaps not in the fastest setting.
    """
    leaves = jax.tree_util.tree_leaves_with_path(model.held)
    int8 = any(leaf.dtype == "int8" for _, leaf in leaves)
    scales = [leaf for path, leaf in leaves if keys(path)[-1] == "scale"]
    found = hashlib.sha256(repr((model.config, int8)).encode())
    for scale in global_arrays.fetch(scales):
        found.update(str(scale.dtype).encode() + scale.tobytes())
    return found.hexdigest()[:16]
