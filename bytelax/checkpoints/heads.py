"""Heads in a directory of their own, which are attached to a model without heads.

`config.json` describes the heads and the trunk that they were trained on, and `model.safetensors`
holds their weights. So heads for a released model can be shared without the model.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping

import numpy as np

from bytelax import architectures
from bytelax.checkpoints import config as plain
from bytelax.checkpoints import layout, safetensors_file
from bytelax.checkpoints.config import CheckpointError
from bytelax.models.configs import HeadsConfig, ModelConfig, TransformerConfig

VERSION = 1
_FORMAT = "bytelax-heads"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Trained:
    """The properties of a model that its heads depend on."""

    kind: str
    vocab_size: int
    trunk: TransformerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Fields:
    """The fields of `config.json`."""

    format: str
    version: int
    heads: HeadsConfig
    model: _Trained


def write_heads(directory: pathlib.Path, config: ModelConfig, params: Mapping) -> None:
    """Writes the heads of a model to a directory; heads in it are overwritten."""
    assert config.heads is not None
    stored = layout.flatten({"heads": params["heads"]})
    tensors = {
        part.name: layout.stored(stored[path], part, plain=True)
        for path, parameter in architectures.heads(config).items()
        for part in parameter.slices
    }
    fields = _Fields(format=_FORMAT, version=VERSION, heads=config.heads, model=_trained(config))
    directory.mkdir(parents=True, exist_ok=True)
    safetensors_file.write_file(directory / safetensors_file.SINGLE, tensors)
    text = json.dumps(plain.to_fields(fields), indent=2)
    (directory / "config.json").write_text(text + "\n")


def read_heads(
    directory: pathlib.Path,
    config: ModelConfig,
    *,
    dtype: np.dtype | None = None,
    shardings: layout.Shardings | None = None,
) -> tuple[ModelConfig, dict]:
    """Reads heads; returns the config of the model with heads, and the heads' parameters.

    Args:
      directory: directory that `write_heads` wrote.
      config: config of the model, without heads.
      dtype: dtype of the parameters; None keeps that of the files.
      shardings: as in `layout.read_parameters`, of a tree with the heads alone.

    Raises:
      CheckpointError: the directory holds no heads, heads for another model, or NaN or infinite
        values.
    """
    source = str(directory / "config.json")
    if not (directory / "config.json").is_file():
        raise CheckpointError(
            f"there are no heads in {directory}; `bytelax train heads` leaves them in OUT/heads"
        )
    found = plain.read_json(directory / "config.json")
    if found.get("format") != _FORMAT or found.get("version") != VERSION:
        raise CheckpointError(
            f"{source} does not describe heads; `bytelax train heads` writes them"
        )
    fields = plain.from_fields(_Fields, found, source)
    if fields.model != _trained(config):
        raise CheckpointError(
            f"the heads in {directory} are for a model of another shape: see {source}"
        )
    tensors = safetensors_file.read_directory(directory)
    try:
        config = dataclasses.replace(config, heads=fields.heads)
    except ValueError as error:
        raise CheckpointError(f"{source}: {error}") from None
    layout.check(config, tensors, source, under=layout.HEADS)
    params = layout.read_parameters(
        config, tensors, str(directory), dtype=dtype, shardings=shardings, under=layout.HEADS
    )
    return config, params["heads"]


def _trained(config: ModelConfig) -> _Trained:
    kind = architectures.of(config).name
    return _Trained(kind=kind, vocab_size=config.vocab_size, trunk=config.trunk)
