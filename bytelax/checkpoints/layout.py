"""Where each parameter of our models lies in a state dict: the one table both ways.

The names are those of transformers' `BltForCausalLM`; a byte transformer alone uses the names that
its entropy model has there. A state dict stores linear maps as [out, in], ours are [in, out] with
heads apart, and queries, keys and values (gates and ups) lie in one array: a `Parameter` is filled
by one or more `Part`s.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bytelax import config as plain
from bytelax import vocab
from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.transformer_config import TransformerConfig
from bytelax.pods import global_arrays

Config = BLTConfig | ByteLMConfig
# A config and a tree of jax.ShapeDtypeStruct -> a tree of jax.Sharding
Shardings = Callable[[Config, dict], dict]
PATCHER = "patcher/"  # the entropy model's parameters: float32 whatever the rest is in
flatten = functools.partial(flatten_dict, sep="/")  # {"a": {"b": x}} -> {"a/b": x}
unflatten = functools.partial(unflatten_dict, sep="/")
_BUFFERS = ("inv_freq", "freqs_cis")  # rotary tables that some files carry and no model reads
_COUNTS = ("layers", "bytes_ahead")  # fields of a config that say how many tensors there are,
_AXES = ("dim", "heads", "head_dim", "ffn_dim", "vocab_size")  # and how large
_ALIGNMENT = 64  # of host arrays, so that JAX on CPU takes them as they are


@dataclasses.dataclass(frozen=True)
class Part:
    """A tensor of the state dict and the place it fills: parameter[at] = split, then transposed.

    Attributes:
      name: in the state dict.
      shape: there.
      split: the shape with heads apart.
      order: the axes of `split` in the order of the parameter's.
      at: index into the parameter.
    """

    name: str
    shape: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]
    at: tuple[slice, ...] = ()

    def read(self, tensor: np.ndarray) -> np.ndarray:
        return tensor.reshape(self.split).transpose(self.order)

    def write(self, parameter: jax.Array | np.ndarray) -> np.ndarray:
        part = np.asarray(parameter[self.at])
        return part.transpose(np.argsort(self.order)).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An array of ours: its shape and the tensors it is made of."""

    shape: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def plain(self) -> bool:
        """Whether it is one tensor of the state dict as it stands."""
        part = self.parts[0]
        return part.shape == self.shape and part.order == tuple(range(len(self.shape)))


def parameters(config: Config) -> dict[str, Parameter]:
    """Every parameter of the model, by its path `encoder/trunk/layers_0/...`."""
    if isinstance(config, ByteLMConfig):
        return _byte_lm(config, "", "")
    enc, glob, dec = config.encoder, config.global_transformer, config.decoder
    k, byte_rows = config.patch_vectors, config.vocab_size
    table = {
        "encoder/embed/embedding": _same("model.local_encoder.embed_tokens", byte_rows, enc.dim),
        "encoder/hash_embed/embedding": _same(
            "model.encoder_hash_tok_embedding", config.hashing.rows, enc.dim
        ),
        "encoder/split/kernel": _linear(
            "model.local_encoder.patch_embedding_projection", (enc.dim,), (k * enc.dim,)
        ),
        **_trunk(enc, "encoder/trunk/", "model.local_encoder."),
        **_cross(enc, "encoder/cross/", "model.local_encoder.cross_attn_layers.0."),
        **_trunk(glob, "global_transformer/trunk/", "model.global_transformer."),
        "decoder/split/kernel": _linear(
            "model.local_decoder.patch_embedding_projection", (glob.dim,), (k * dec.dim,)
        ),
        **_trunk(dec, "decoder/trunk/", "model.local_decoder."),
        "decoder/norm/scale": _same("model.local_decoder.norm", dec.dim),
        "decoder/head/kernel": _linear("lm_head", (dec.dim,), (config.vocab_size,)),
    }
    for i in range(config.decoder_cross_layers):
        name = f"model.local_decoder.cross_attn_layers.{i}."
        table.update(_cross(dec, f"decoder/cross_{i}/", name))
    if k * enc.dim != glob.dim:
        table["global_transformer/project/kernel"] = _linear(
            "model.global_transformer.token_embedding_projection", (k * enc.dim,), (glob.dim,)
        )
    if config.decoder_input == "embedding":
        table["decoder/embed/embedding"] = _same(
            "model.local_decoder.embed_tokens", byte_rows, dec.dim
        )
    if config.patcher is not None:
        table.update(_byte_lm(config.patcher, PATCHER, "model.patcher."))
    return table


def bounded_parameters(
    config: Config, shapes: Mapping[str, tuple[int, ...]], source: str
) -> dict[str, Parameter]:
    """As `parameters`, for a config that may ask for more than there is memory for in the world.

    Args:
      config: the model.
      shapes: of all that is stored.
      source: what to call it in errors.

    Raises:
      CheckpointError: it counts more layers or wider ones than are stored.
    """
    longest = max((size for shape in shapes.values() for size in shape), default=0)
    sizes = flatten_dict(plain.to_fields(config), sep=".")
    for field, value in sizes.items():
        last = field.rpartition(".")[2]
        if value is None:  # a model without such a part
            continue
        if last in _COUNTS and value > len(shapes):
            raise CheckpointError(f"{source}: {field} is {value}, of {len(shapes)} tensors in all")
        if last in _AXES and value > longest:
            raise CheckpointError(
                f"{source}: {field} is {value}, and no tensor has more than {longest} of anything"
            )
        if last == "vocab_size" and value <= vocab.OFFSET:
            raise CheckpointError(f"{source}: {field} is {value}, which leaves no room for bytes")
    return parameters(config)


def check(config: Config, tensors: Mapping[str, Tensor], source: str) -> None:
    """Makes sure that a state dict holds the parameters of a config, and little more.

    An entropy model that the config has no use for may lie beside them.

    Raises:
      CheckpointError: a tensor is missing, unexpected or misshapen.
    """
    idle = getattr(config, "patcher", True) is None
    shapes = {
        name: tensor.shape
        for name, tensor in tensors.items()
        if not (idle and name.startswith("model.patcher."))
    }
    _check(bounded_parameters(config, shapes, source), shapes, source)


def read_parameters(
    config: Config,
    tensors: Mapping[str, Tensor],
    *,
    dtype: np.dtype | None,
    shardings: Shardings | None = None,
) -> dict:
    """Fills the parameters from a state dict that `check` has seen, one at a time.

    Args:
      config: the model.
      tensors: the state dict; rotary buffers in it are ignored.
      dtype: of every parameter but the patcher's, which are float32; None keeps what is stored
        (the wider one where the tensors of a parameter differ; 32 bits of 64).
      shardings: where to put the parameters; by default on the default device.

    Returns:
      The nested dict of `jax.Array`s that `module.apply({"params": ...})` takes.

    """
    table = parameters(config)
    abstract = {
        path: jax.ShapeDtypeStruct(parameter.shape, _dtype(path, parameter, tensors, dtype))
        for path, parameter in table.items()
    }
    places = {} if shardings is None else flatten(shardings(config, unflatten(abstract)))
    read = {}
    for path, parameter in table.items():
        host = _aligned(parameter.shape, abstract[path].dtype)
        for part in parameter.parts:
            if parameter.plain:
                for start, rows in tensors[part.name].blocks():
                    host[start : start + len(rows)] = rows
            else:
                host[part.at] = part.read(tensors[part.name].whole())
        place = places.get(path)
        if place is None or place.is_fully_addressable:
            placed = jax.device_put(host, place, may_alias=True)
        else:  # every process has read the same, and puts its share on its devices
            placed = global_arrays.put(host, place)
        read[path] = placed.block_until_ready()  # or the host copies of a device pile up
    return unflatten(read)


def state_dict(config: Config, params: Mapping) -> dict[str, Tensor]:
    """The parameters as a state dict, nothing copied before it is read.

    Raises:
      CheckpointError: the parameters are not those of the model.
    """
    table, leaves = parameters(config), flatten(params)
    for path in table:
        if path not in leaves:
            raise CheckpointError(f"the parameters lack {path}, which the config calls for")
    for path, leaf in leaves.items():
        if path not in table:
            raise CheckpointError(f"the config has no place for the parameter {path}")
        if leaf.shape != table[path].shape:
            raise CheckpointError(
                f"the parameter {path} has shape {leaf.shape}, not {table[path].shape}"
            )
    tensors = {}
    for path, parameter in table.items():
        for part in parameter.parts:
            tensors[part.name] = _stored(leaves[path], part, plain=parameter.plain)
    return tensors


def _byte_lm(config: ByteLMConfig, path: str, name: str):
    return {
        f"{path}embed/embedding": _same(f"{name}embed_tokens", config.vocab_size, config.trunk.dim),
        **_trunk(config.trunk, f"{path}trunk/", name),
        f"{path}norm/scale": _same(f"{name}norm", config.trunk.dim),
        f"{path}head/kernel": _linear(f"{name}lm_head", (config.trunk.dim,), (config.vocab_size,)),
        **_heads(config, f"{path}heads/", f"{name}heads."),
    }


def _heads(config: ByteLMConfig, path: str, name: str):
    """Nobody else's layout has them: they lie there under our names, as they are."""
    if config.heads is None:
        return {}
    ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    shapes = jax.eval_shape(ByteLM(config).init, jax.random.key(0), ids)["params"].get("heads", {})
    return {
        path + own: _same(name + own.replace("/", "."), *leaf.shape)
        for own, leaf in flatten(shapes).items()
    }


def _trunk(c: TransformerConfig, path: str, name: str):
    table = {}
    for i in range(c.layers):
        block, stored = f"{path}layers_{i}/", f"{name}layers.{i}."
        table |= {
            f"{block}attention_norm/scale": _same(f"{stored}input_layernorm", c.dim),
            f"{block}attention/qkv/kernel": _queries_keys_values(c, f"{stored}self_attn."),
            f"{block}attention/out/kernel": _linear(
                f"{stored}self_attn.o_proj", (c.heads, c.head_dim), (c.dim,)
            ),
            f"{block}mlp_norm/scale": _same(f"{stored}post_attention_layernorm", c.dim),
            f"{block}mlp/gate_up/kernel": _fused(
                (c.dim,), (2, c.ffn_dim), {"gate_proj": (0, 1), "up_proj": (1, 2)}, f"{stored}mlp."
            ),
            f"{block}mlp/down/kernel": _linear(f"{stored}mlp.down_proj", (c.ffn_dim,), (c.dim,)),
        }
    return table


def _cross(c: TransformerConfig, path: str, name: str):
    return {
        f"{path}query_norm/scale": _same(f"{name}q_norm", c.dim),
        f"{path}key_norm/scale": _same(f"{name}k_norm", c.dim),
        f"{path}query/kernel": _linear(f"{name}q_proj", (c.dim,), (c.heads, c.head_dim)),
        f"{path}key_value/kernel": _fused(
            (c.dim,), (2, c.kv_heads, c.head_dim), {"k_proj": (0, 1), "v_proj": (1, 2)}, name
        ),
        f"{path}out/kernel": _linear(f"{name}o_proj", (c.heads, c.head_dim), (c.dim,)),
    }


def _queries_keys_values(c: TransformerConfig, name: str):
    """[D, K, G + 2, hd]: the G query heads of each key head, its key and its value."""
    group = c.heads // c.kv_heads
    places = {"q_proj": (0, group), "k_proj": (group, group + 1), "v_proj": (group + 1, group + 2)}
    return _fused((c.dim,), (c.kv_heads, group + 2, c.head_dim), places, name, axis=1)


def _fused(inputs, outputs, places, name, *, axis=0):
    """Linear maps side by side on one output axis: {tensor: (start, stop)} on it."""
    parts = []
    for tensor, (start, stop) in places.items():
        own = (*outputs[:axis], stop - start, *outputs[axis + 1 :])
        (part,) = _linear(f"{name}{tensor}", inputs, own).parts
        at = (*[slice(None)] * (len(inputs) + axis), slice(start, stop))
        parts.append(dataclasses.replace(part, at=at))
    return Parameter((*inputs, *outputs), tuple(parts))


def _linear(name, inputs, outputs):
    """[out, in] in the state dict, [*inputs, *outputs] here."""
    split = (*outputs, *inputs)
    order = (*range(len(outputs), len(split)), *range(len(outputs)))
    shape = (math.prod(outputs), math.prod(inputs))
    return Parameter((*inputs, *outputs), (Part(f"{name}.weight", shape, split, order),))


def _same(name, *shape):
    return Parameter(shape, (Part(f"{name}.weight", shape, shape, tuple(range(len(shape)))),))


def _check(table, shapes, source):
    parts = {part.name: part for parameter in table.values() for part in parameter.parts}
    for name, part in parts.items():
        if name not in shapes:
            raise CheckpointError(f"{source} lacks the tensor {name}, which its config calls for")
        if shapes[name] != part.shape:
            raise CheckpointError(
                f"{source}: {name} has shape {shapes[name]}, its config calls for {part.shape}"
            )
    for name in shapes:
        if name not in parts and not name.endswith(_BUFFERS):
            raise CheckpointError(
                f"{source} has a tensor {name}, which its config has no place for"
            )


def _dtype(path, parameter, tensors, dtype):
    if path.startswith(PATCHER):
        return np.dtype(np.float32)
    if dtype is not None:
        return dtype
    stored = [tensors[part.name].dtype for part in parameter.parts]
    widest = functools.reduce(jnp.promote_types, stored)
    return np.dtype(np.float32) if np.dtype(widest).itemsize > 4 else np.dtype(widest)


def _aligned(shape, dtype):
    size = math.prod(shape) * dtype.itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -buffer.ctypes.data % _ALIGNMENT
    return buffer[skip : skip + size].view(dtype).reshape(shape)


def _stored(leaf, part, *, plain):
    def rows(start, stop):
        return np.asarray(leaf[start:stop]) if plain else part.write(leaf)[start:stop]

    return Tensor(part.shape, np.dtype(leaf.dtype), rows)
