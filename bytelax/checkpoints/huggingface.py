"""The layouts of transformers: config.json and safetensors files.

A BLT is a `BltForCausalLM`, see `blt`; a byte transformer is a Llama or one of its relatives, see
`llama`. A config is read from the fields that transformers reads; what transformers does not have
is stored under "bytelax" in config.json, so that bytelax reads back exactly the model it wrote. A
BLT that transformers would load but compute wrongly has a `model_type` of its own, which it
refuses.
"""

import json
import pathlib
import types
import warnings
from collections.abc import Mapping
from typing import Any

from flax.traverse_util import flatten_dict

from bytelax import architectures
from bytelax.checkpoints import blt, byte_ids, layout, llama, safetensors_file
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.configs import ModelConfig

_FORMATS = {"blt": blt, "byte-lm": llama}  # by the name of the architecture
_KINDS = {model_type: kind for kind, form in _FORMATS.items() for model_type in form.MODEL_TYPES}
# Without these fields transformers computes the same, except for texts with an EOS inside.
_HARMLESS = {"mask_documents", "patcher.mask_documents"}
_HEADS = "heads."  # fields of heads, which transformers ignores


def read_config(
    directory: pathlib.Path, asked: Mapping[str, Any]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Reads the config of a directory and its state dict.

    Args:
      directory: of the checkpoint.
      asked: which ids are bytes; see `byte_ids.find`.

    Raises:
      CheckpointError: the directory holds no model that bytelax can run.
    """
    source = str(directory / "config.json")
    fields = plain.read_json(directory / "config.json")
    form = _FORMATS[_kind(fields, source)]
    tensors = safetensors_file.read_directory(directory)
    ids, size = None, 0
    if form is llama and fields.get("bytelax") is None:
        ids, size = byte_ids.find(directory, fields, asked), fields["vocab_size"]
        fields = ids.fields(fields)
    else:
        byte_ids.refuse(asked)
    config = parse(fields, tensors, source=source)
    tensors = form.from_state_dict(config, tensors, fields, source)
    if ids is not None:
        tensors |= ids.reordered(tensors, size, source)
    return config, tensors


check = layout.check
read_parameters = layout.read_parameters


def write(
    directory: pathlib.Path, config: ModelConfig, params: Mapping, *, int8: bool = False
) -> None:
    """Writes config.json and model.safetensors.

    With `int8` the matrices of the layers are rounded to int8; see `safetensors_file`.

    Raises:
      CheckpointError: the parameters do not match the config.
    """
    tensors = _format_of(config).to_state_dict(config, layout.state_dict(config, params))
    head = tensors["lm_head.weight"].dtype.name
    fields = {**to_config_json(config), "dtype": head}
    (directory / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    if int8:
        tensors = safetensors_file.as_int8(tensors)
    safetensors_file.write_file(directory / safetensors_file.SINGLE, tensors)


def parse(fields: dict, tensors: Mapping[str, Tensor], *, source: str) -> ModelConfig:
    """Parses a config.json, as written by bytelax or by any release of transformers.

    The state dict has the sizes that config.json leaves out. `source` is its name in errors.

    Raises:
      CheckpointError: the model type or the patching mode is unknown, or the config refuses a
        value.
    """
    kind = _kind(fields, source)
    theirs = _FORMATS[kind].config_fields(fields, source, tensors)
    own = plain.merge(theirs, fields.get("bytelax") or {})
    config: ModelConfig = plain.from_fields(architectures.CONFIGS[kind], own, source)
    mode = fields.get("patching_mode", "entropy")
    # A mode that transformers does not have is accepted if the object "bytelax" repeats it.
    rule = config.patching
    if rule is not None and mode not in ("entropy", "byte", rule.mode):
        raise CheckpointError(f"{source}: patching_mode {mode!r} is not one of entropy, byte")
    return config


def _kind(fields: Mapping, source: str) -> str:
    """Returns the name of the architecture; raises CheckpointError if it is unknown."""
    model_type = fields.get("model_type")
    if not isinstance(model_type, str) or model_type not in _KINDS:
        if fields.get("format") == "bytelax-heads":
            raise CheckpointError(f"{source} describes heads alone: load their model, with heads=")
        raise CheckpointError(
            f"{source} has model_type {model_type!r}; bytelax reads {', '.join(_KINDS)}"
        )
    return _KINDS[model_type]


def _format_of(config: ModelConfig) -> types.ModuleType:
    kind = architectures.of(config).name
    if kind not in _FORMATS:
        raise CheckpointError(f"transformers cannot express a {kind}; use the layout 'orbax'")
    return _FORMATS[kind]


def to_config_json(config: ModelConfig) -> dict:
    """Converts a config to the JSON object from which `parse` restores it."""
    fields, lost = _format_of(config).to_config_json(config), _lost(config)
    if lost:
        fields["bytelax"] = lost
    if _fatal(lost):
        fields["model_type"] = "bytelax-blt"
        del fields["architectures"]
    return fields


def check_transformers(config: ModelConfig) -> None:
    """Checks that transformers can load the model that `write` writes and computes the same.

    Warns of heads, which transformers ignores, and if the results differ for some texts only.

    Raises:
      CheckpointError: transformers cannot run the model; the message names the fields.
    """
    fatal = _fatal(_lost(config))
    if fatal:
        raise CheckpointError(
            f"transformers cannot express {', '.join(fatal)}; use the layout 'orbax'"
        )
    if config.heads is not None:
        warnings.warn("transformers ignores heads: only bytelax drafts with them", stacklevel=2)
    if config.mask_documents:
        warnings.warn(
            "transformers ignores mask_documents: it differs after an EOS inside a text",
            stacklevel=2,
        )
    if config.patching is not None and config.patching.max_patch_length is not None:
        warnings.warn(
            "transformers is wrong at the last position of a text when max_patch_length is set",
            stacklevel=2,
        )


def _lost(config: ModelConfig) -> dict:
    """The config fields that are lost if only the fields of transformers are stored."""
    form = _format_of(config)
    theirs = form.config_fields(form.to_config_json(config), "config.json", {})
    return plain.difference(plain.to_fields(config), theirs)


def _fatal(lost: dict) -> list[str]:
    """Those of the lost fields without which transformers computes something else, as text."""
    return [
        f"{name}={value!r}"
        for name, value in flatten_dict(lost, sep=".").items()
        if name not in _HARMLESS and not name.startswith(_HEADS)
    ]
