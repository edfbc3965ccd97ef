"""The architectures: config, module, target and stored tensors of each kind of model.

A new kind is a module with its config, a target, and an entry here; nothing else depends on the
kind of a model. What only some kinds have is in `models.configs.ModelConfig`, with a default.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict

from bytelax.decode.target import Rewindable
from bytelax.models import tensor_table
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.byte_model import ByteModel
from bytelax.models.configs import ModelConfig
from bytelax.models.tensor_table import Parameter, linear, same
from bytelax.systems import trained
from bytelax.targets.blt import BLTTarget
from bytelax.targets.byte_lm import ByteLMTarget

PATCHER = "patcher/"  # path of the entropy model's parameters, which are always float32


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One kind of model.

    Attributes:
      name: what `config.json` calls it in bytelax's own layout.
      config: class of the configs.
      module: class of the Flax modules; takes a config.
      target: makes the decoding target of a module.
      parameters: makes the table of a config's parameters, by their paths, such as
        `encoder/trunk/layers_0/...`, without those of its heads.
    """

    name: str
    config: type
    module: Callable[[Any], ByteModel]
    target: Callable[[Any], Rewindable]
    parameters: Callable[[Any], dict[str, Parameter]]


def _byte_lm(config: ByteLMConfig, path: str = "", name: str = "") -> dict[str, Parameter]:
    return {
        f"{path}embed/embedding": same(f"{name}embed_tokens", config.vocab_size, config.trunk.dim),
        **tensor_table.trunk(config.trunk, f"{path}trunk/", name),
        f"{path}norm/scale": same(f"{name}norm", config.trunk.dim),
        f"{path}head/kernel": linear(f"{name}lm_head", (config.trunk.dim,), (config.vocab_size,)),
    }


def _blt(config: BLTConfig) -> dict[str, Parameter]:
    enc, glob, dec = config.encoder, config.global_transformer, config.decoder
    k, byte_rows = config.patch_vectors, config.vocab_size
    table = {
        "encoder/embed/embedding": same("model.local_encoder.embed_tokens", byte_rows, enc.dim),
        "encoder/hash_embed/embedding": same(
            "model.encoder_hash_tok_embedding", config.hashing.rows, enc.dim
        ),
        "encoder/split/kernel": linear(
            "model.local_encoder.patch_embedding_projection", (enc.dim,), (k * enc.dim,)
        ),
        **tensor_table.trunk(enc, "encoder/trunk/", "model.local_encoder."),
        **tensor_table.cross(enc, "encoder/cross/", "model.local_encoder.cross_attn_layers.0."),
        **tensor_table.trunk(glob, "global_transformer/trunk/", "model.global_transformer."),
        "decoder/split/kernel": linear(
            "model.local_decoder.patch_embedding_projection", (glob.dim,), (k * dec.dim,)
        ),
        **tensor_table.trunk(dec, "decoder/trunk/", "model.local_decoder."),
        "decoder/norm/scale": same("model.local_decoder.norm", dec.dim),
        "decoder/head/kernel": linear("lm_head", (dec.dim,), (config.vocab_size,)),
    }
    for i in range(config.decoder_cross_layers):
        name = f"model.local_decoder.cross_attn_layers.{i}."
        table.update(tensor_table.cross(dec, f"decoder/cross_{i}/", name))
    if k * enc.dim != glob.dim:
        table["global_transformer/project/kernel"] = linear(
            "model.global_transformer.token_embedding_projection", (k * enc.dim,), (glob.dim,)
        )
    if config.decoder_input == "embedding":
        table["decoder/embed/embedding"] = same(
            "model.local_decoder.embed_tokens", byte_rows, dec.dim
        )
    if config.patcher is not None:
        for part in (_byte_lm, heads):
            table.update(part(config.patcher, PATCHER, "model.patcher."))
    return table


ARCHITECTURES = (
    Architecture("blt", BLTConfig, BLT, BLTTarget, _blt),
    Architecture("byte-lm", ByteLMConfig, ByteLM, ByteLMTarget, _byte_lm),
)
CONFIGS = {each.name: each.config for each in ARCHITECTURES}


def of(config: ModelConfig) -> Architecture:
    """Returns the architecture of a config."""
    return next(each for each in ARCHITECTURES if each.config is type(config))


def module_of(config: ModelConfig) -> ByteModel:
    """Creates the Flax module that a config describes."""
    return of(config).module(config)


def target_of(module: ByteModel) -> Rewindable:
    """Creates the decoding target of a module, for a `decode.Method`."""
    return of(module.config).target(module)


def shapes(module: ByteModel) -> dict:
    """Returns the shapes of every parameter of a model, those of its heads included."""
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    own = jax.eval_shape(module.init, jax.eval_shape(jax.random.key, 0), ids)["params"]
    heads = trained.shapes(module.config)
    return own | ({"heads": heads} if heads else {})


def logical_axes(module: ByteModel) -> dict:
    """Returns the logical axes of every parameter of a model, those of its heads included."""
    heads = trained.logical_axes(module.config)
    return module.logical_axes() | ({"heads": heads} if heads else {})


def parameters(config: ModelConfig) -> dict[str, Parameter]:
    """Returns how every parameter of a model is stored, by its path."""
    return of(config).parameters(config) | heads(config)


def heads(config: ModelConfig, path: str = "", name: str = "") -> dict[str, Parameter]:
    """Parameters of prediction heads. Other layouts have no names for them, so ours are used.

    Args:
      config: config of the model.
      path: beginning of the parameters' paths.
      name: beginning of the tensors' names.
    """
    return {
        f"{path}heads/{own}": same(f"{name}heads.{own.replace('/', '.')}", *leaf.shape)
        for own, leaf in flatten_dict(trained.shapes(config), sep="/").items()
    }
