"""The table that maps bytelax's parameters to the tensors of a state dict, for reading and writing.

Tensor names are those of transformers' `BltForCausalLM`. A byte transformer uses the names that the
entropy model has there. A state dict stores linear maps as [out, in]; bytelax stores them as
[in, out], with separate axes for heads, and fuses queries, keys and values (and gate and up) into
one array. Hence a `Parameter` consists of one or more `TensorSlice` objects.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bytelax import vocab
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.tensors import Tensor, check_finite
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.configs import Config, TransformerConfig
from bytelax.models.narrow import Int8
from bytelax.pods import global_arrays
from bytelax.systems import trained

# (config, tree of `jax.ShapeDtypeStruct`) -> tree of `jax.sharding.Sharding`; None: one device
Shardings = Callable[[Config, dict], dict | None]
PATCHER = "patcher/"  # path of the entropy model's parameters, which are always float32
HEADS = "heads/"
HASH_TABLE = "encoder/hash_embed/embedding"
flatten = functools.partial(flatten_dict, sep="/")  # {"a": {"b": x}} -> {"a/b": x}
unflatten = functools.partial(unflatten_dict, sep="/")
_BUFFERS = ("inv_freq", "freqs_cis")  # rotary tables in some files, which no model reads
_COUNTS = ("layers", "count")  # config fields on which the number of tensors depends
_ALIGNMENT = 64  # alignment, in bytes, at which JAX on CPU uses host arrays without a copy


@dataclasses.dataclass(frozen=True)
class TensorSlice:
    """A tensor of a state dict, and the slice of a parameter that it fills.

    parameter[at] = tensor.reshape(split).transpose(order).

    Attributes:
      name: name in the state dict.
      shape: shape in the state dict.
      split: shape after heads are split into axes of their own.
      order: permutation from the axes of `split` to those of the parameter.
      at: index of the slice in the parameter.
    """

    name: str
    shape: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]
    at: tuple[slice, ...] = ()

    def read(self, tensor: np.ndarray) -> np.ndarray:
        """Converts a tensor of the state dict to the slice of the parameter."""
        return tensor.reshape(self.split).transpose(self.order)

    def write(self, parameter: jax.Array | np.ndarray) -> np.ndarray:
        """Converts the slice of the parameter to the tensor of the state dict."""
        part = np.asarray(parameter[self.at])
        return part.transpose(np.argsort(self.order)).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a bytelax model: its shape, and the tensors that it consists of."""

    shape: tuple[int, ...]
    slices: tuple[TensorSlice, ...]

    @property
    def contracted(self) -> tuple[int, ...]:
        """The axes of a linear map that a product sums over."""
        return tuple(range(self.slices[0].order.index(0)))

    @property
    def plain(self) -> bool:
        """Whether the parameter is identical to one tensor of the state dict."""
        part = self.slices[0]
        return part.shape == self.shape and part.order == tuple(range(len(self.shape)))


def parameters(config: Config) -> dict[str, Parameter]:
    """All parameters of a model, by their paths, such as `encoder/trunk/layers_0/...`."""
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
    return table | heads(config)


def parameters_under(start: str, config: Config) -> dict[str, Parameter]:
    """As `parameters`, those whose paths begin so."""
    return {path: x for path, x in parameters(config).items() if path.startswith(start)}


def network_kernels(config: Config) -> dict[str, Parameter]:
    """The kernels of a model's networks, without those of its entropy model and of its heads."""
    return {
        path: x
        for path, x in parameters(config).items()
        if path.endswith("/kernel") and not path.startswith((PATCHER, HEADS))
    }


def quantized_axes(config: Config) -> dict[str, tuple[int, ...]]:
    """Paths of the parameters that quantization takes, and the axes along which scales are shared.

    They are the kernels of the networks, with a scale for each output, and the hash table, with a
    scale for each row. The entropy model is not among them, because patches would move, nor are
    prediction heads, whose precision makes drafts no cheaper.
    """
    axes = {path: x.contracted for path, x in network_kernels(config).items()}
    return axes | ({HASH_TABLE: (1,)} if isinstance(config, BLTConfig) else {})


def quantized(config: Config, params: dict) -> dict:
    """Replaces those parameters of a model in memory by int8 that `quantized_axes` names."""
    axes = quantized_axes(config)
    return unflatten(
        {
            path: on_device(Int8.of(np.asarray(x), axes[path])) if path in axes else x
            for path, x in flatten(params).items()
        }
    )


def on_device(x: Int8) -> Int8:
    """Puts an int8 array of the host on the default device, without a copy where it is a CPU."""
    return jax.block_until_ready(jax.device_put(x, may_alias=True))


def check_counts(config: Any, arrays: int, source: str) -> None:
    """Refuses a damaged config, whose table of parameters could fill the memory.

    Args:
      config: config of a model or of heads.
      arrays: number of stored arrays.
      source: name of the checkpoint in error messages.

    Raises:
      CheckpointError: there are more layers or heads than stored arrays, or too few ids.
    """
    for field, value in flatten_dict(plain.to_fields(config), sep=".").items():
        last = field.rpartition(".")[2]
        if last in _COUNTS and value > arrays:
            raise CheckpointError(f"{source}: {field} is {value}, of {arrays} tensors in all")
        if last == "vocab_size" and value < vocab.OFFSET + vocab.BYTES:
            raise CheckpointError(
                f"{source}: {field} is {value}; with {vocab.OFFSET} special ids and "
                f"{vocab.BYTES} bytes it is at least {vocab.OFFSET + vocab.BYTES}"
            )


def check(config: Config, tensors: Mapping[str, Tensor], source: str, *, under: str = "") -> None:
    """Checks that a state dict holds exactly the parameters of a config.

    Rotary tables, and an entropy model that the config does not use, are allowed in addition.

    Args:
      config: config of the model.
      tensors: the state dict.
      source: name of the checkpoint in error messages.
      under: only the parameters whose paths begin so belong in the state dict.

    Raises:
      CheckpointError: a tensor is missing or unexpected, or has the wrong shape.
    """
    idle = getattr(config, "patcher", True) is None
    shapes = {
        name: tensor.shape
        for name, tensor in tensors.items()
        if not (idle and name.startswith("model.patcher."))
    }
    if not under:
        check_counts(config, len(shapes), source)
    table = parameters_under(under, config)
    wanted = {part.name: part.shape for parameter in table.values() for part in parameter.slices}
    check_shapes(
        wanted, shapes, source, kind="tensor", ignored=lambda name: name.endswith(_BUFFERS)
    )


def read_parameters(
    config: Config,
    tensors: Mapping[str, Tensor],
    source: str,
    *,
    dtype: np.dtype | None,
    shardings: Shardings | None = None,
    under: str = "",
    quantize: bool = False,
) -> dict:
    """Reads parameters from a state dict that `check` has accepted, one parameter at a time.

    Args:
      config: config of the model.
      tensors: the state dict; rotary tables in it are ignored.
      source: name of the checkpoint in error messages.
      dtype: dtype of all parameters except the patcher's, which are float32. None keeps the stored
        dtype. If the tensors of a parameter differ, their dtypes are promoted; float64 becomes
        float32.
      shardings: where to put the parameters; by default on the default device.
      under: read only the parameters whose paths begin so, and no other tensor.
      quantize: make those of `quantized_axes` int8, from the stored values.

    Returns:
      The nested dict of `jax.Array`s for `module.apply({"params": ...})`.

    Raises:
      CheckpointError: a tensor holds NaN or infinite values, in its own dtype or as `dtype`.
    """
    table = parameters_under(under, config)
    abstract: dict[str, Any] = {
        path: jax.ShapeDtypeStruct(parameter.shape, _dtype(path, parameter, tensors, dtype))
        for path, parameter in table.items()
    }
    axes = quantized_axes(config) if quantize else {}
    for path in axes.keys() & table.keys():
        abstract[path] = _abstract_int8(abstract[path], axes[path])
    wanted = None if shardings is None else shardings(config, unflatten(abstract))
    places = {} if wanted is None else flatten(wanted)
    read = {}
    for path, parameter in table.items():
        if path in axes:
            int8 = _read_int8(parameter, tensors, source, abstract[path], axes[path])
            read[path] = on_device(int8)
            continue
        host = _aligned(parameter.shape, abstract[path].dtype)
        for part in parameter.slices:
            if parameter.plain:
                for start, rows in tensors[part.name].blocks():
                    _fill(host, slice(start, start + len(rows)), rows, part, source)
            else:
                _fill(host, part.at, part.read(tensors[part.name].whole()), part, source)
        place = places.get(path)
        if place is None or place.is_fully_addressable:
            placed = jax.device_put(host, place, may_alias=True)
        else:  # every process has read the whole array, and puts its shards on its devices
            placed = global_arrays.put(host, place)
        read[path] = placed.block_until_ready()  # otherwise host copies would accumulate
    return unflatten(read)


def state_dict(config: Config, params: Mapping) -> dict[str, Tensor]:
    """Converts parameters to a state dict of lazy tensors, which copy nothing until they are read.

    Raises:
      CheckpointError: the parameters do not match the config.
    """
    table, leaves = parameters(config), flatten(params)
    for path in table:
        if path not in leaves:
            raise CheckpointError(f"the parameters lack {path}, which the config calls for")
    for path, leaf in leaves.items():
        if path not in table:
            raise CheckpointError(f"the config has no place for the parameter {path}")
        if isinstance(leaf, Int8):
            raise CheckpointError(
                "an int8 model cannot be written: write the model it was made from, which becomes "
                "int8 whenever it is loaded so"
            )
        if leaf.shape != table[path].shape:
            raise CheckpointError(
                f"the parameter {path} has shape {leaf.shape}, not {table[path].shape}"
            )
    tensors = {}
    for path, parameter in table.items():
        for part in parameter.slices:
            tensors[part.name] = stored(leaves[path], part, plain=parameter.plain)
    return tensors


def _byte_lm(config: ByteLMConfig, path: str, name: str):
    return {
        f"{path}embed/embedding": _same(f"{name}embed_tokens", config.vocab_size, config.trunk.dim),
        **_trunk(config.trunk, f"{path}trunk/", name),
        f"{path}norm/scale": _same(f"{name}norm", config.trunk.dim),
        f"{path}head/kernel": _linear(f"{name}lm_head", (config.trunk.dim,), (config.vocab_size,)),
        **heads(config, path, name),
    }


def heads(config: Config, path: str = "", name: str = "") -> dict[str, Parameter]:
    """Parameters of prediction heads. Other layouts have no names for them, so ours are used.

    Args:
      config: config of the model.
      path: beginning of the parameters' paths.
      name: beginning of the tensors' names.
    """
    return {
        f"{path}heads/{own}": _same(f"{name}heads.{own.replace('/', '.')}", *leaf.shape)
        for own, leaf in flatten(trained.shapes(config)).items()
    }


def _trunk(c: TransformerConfig, path: str, name: str):
    table: dict[str, Any] = {}
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
        if c.biases != "none":
            kernel = table[f"{block}attention/qkv/kernel"]
            table[f"{block}attention/qkv_bias"] = _bias_of(kernel)
        if c.biases == "all":
            table[f"{block}attention/out_bias"] = _bias_of(table[f"{block}attention/out/kernel"])
        if c.qk_norm:
            for ours, theirs in (("query", "q_norm"), ("key", "k_norm")):
                path_of_norm = f"{block}attention/{ours}_norm/scale"
                table[path_of_norm] = _same(f"{stored}self_attn.{theirs}", c.head_dim)
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
    """The fused kernel [D, K, G + 2, hd]: each key head with its G queries, its key, its value."""
    group = c.heads // c.kv_heads
    places = {"q_proj": (0, group), "k_proj": (group, group + 1), "v_proj": (group + 1, group + 2)}
    return _fused((c.dim,), (c.kv_heads, group + 2, c.head_dim), places, name, axis=1)


def _fused(inputs, outputs, places, name, *, axis=0):
    """Linear maps concatenated along an output axis; `places` gives the range of each tensor."""
    parts = []
    for tensor, (start, stop) in places.items():
        own = (*outputs[:axis], stop - start, *outputs[axis + 1 :])
        (part,) = _linear(f"{name}{tensor}", inputs, own).slices
        at = (*[slice(None)] * (len(inputs) + axis), slice(start, stop))
        parts.append(dataclasses.replace(part, at=at))
    return Parameter((*inputs, *outputs), tuple(parts))


def _linear(name, inputs, outputs):
    """A linear map, stored as [out, in] in the state dict and as [*inputs, *outputs] in bytelax."""
    split = (*outputs, *inputs)
    order = (*range(len(outputs), len(split)), *range(len(outputs)))
    shape = (math.prod(outputs), math.prod(inputs))
    return Parameter((*inputs, *outputs), (TensorSlice(f"{name}.weight", shape, split, order),))


def _bias_of(kernel):
    """The bias of a linear map, from the table's entry of its kernel."""
    inputs, parts = len(kernel.contracted), []
    for part in kernel.slices:
        outputs = part.split[: len(part.split) - inputs]
        name, order = f"{part.name.removesuffix('weight')}bias", tuple(range(len(outputs)))
        parts.append(TensorSlice(name, part.shape[:1], outputs, order, part.at[inputs:]))
    return Parameter(kernel.shape[inputs:], tuple(parts))


def _same(name, *shape):
    return Parameter(
        shape, (TensorSlice(f"{name}.weight", shape, shape, tuple(range(len(shape)))),)
    )


def check_shapes(
    wanted: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, tuple[int, ...]],
    source: str,
    *,
    kind: str,
    ignored: Callable[[str], bool],
) -> None:
    """Raises CheckpointError unless the stored arrays are those that the config requires.

    Args:
      wanted: shapes that the config requires, by name.
      stored: shapes of the stored arrays, by name.
      source: the file or directory, for error messages.
      kind: what an array is called in error messages.
      ignored: whether a stored array of this name is allowed although the config does not need it.
    """
    for name, shape in wanted.items():
        if name not in stored:
            raise CheckpointError(f"{source} lacks the {kind} {name}, which its config calls for")
        if stored[name] != shape:
            raise CheckpointError(
                f"{source}: {name} has shape {stored[name]}, its config calls for {shape}"
            )
    for name in stored:
        if name not in wanted and not ignored(name):
            raise CheckpointError(
                f"{source} has a {kind} {name}, which its config has no place for"
            )


def _dtype(path, parameter, tensors, dtype):
    if path.startswith(PATCHER):
        return np.dtype(np.float32)
    if dtype is not None:
        return dtype
    stored = [tensors[part.name].dtype for part in parameter.slices]
    widest = functools.reduce(jnp.promote_types, stored)
    return np.dtype(np.float32) if np.dtype(widest).itemsize > 4 else np.dtype(widest)


def _abstract_int8(x: jax.ShapeDtypeStruct, axes: tuple[int, ...]) -> Int8:
    scale = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return Int8(
        jax.ShapeDtypeStruct(x.shape, jnp.int8),
        jax.ShapeDtypeStruct(scale, jnp.float32),
        x.dtype.name,
    )


def _fill(host: np.ndarray, at, values: np.ndarray, part: TensorSlice, source: str) -> None:
    """Sets a slice of an array to values of a tensor, cast to its dtype, which must be finite."""
    with np.errstate(over="ignore"):  # the cast is looked at instead
        host[at] = values
    check_finite(host[at], f"{source}: the tensor {part.name}")


def _read_int8(parameter, tensors, source, abstract: Int8, axes) -> Int8:
    """Reads a parameter as int8; a table, whose rows have their own scales, block by block."""
    if not parameter.plain:
        names = [part.name for part in parameter.slices]
        widest = functools.reduce(jnp.promote_types, [tensors[name].dtype for name in names])
        host = np.empty(parameter.shape, widest)
        for part in parameter.slices:
            _fill(host, part.at, part.read(tensors[part.name].whole()), part, source)
        return Int8.of(host, axes, dtype=abstract.dtype)
    values = _aligned(abstract.shape, np.dtype(np.int8))
    scale = _aligned(abstract.scale.shape, np.dtype(np.float32))
    (part,) = parameter.slices
    for start, rows in tensors[part.name].blocks():
        check_finite(rows, f"{source}: the tensor {part.name}")
        block = Int8.of(rows, axes)
        values[start : start + len(rows)] = block.values
        scale[start : start + len(rows)] = block.scale
    return Int8(values, scale, abstract.dtype)


def _aligned(shape, dtype):
    size = math.prod(shape) * dtype.itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -buffer.ctypes.data % _ALIGNMENT
    return buffer[skip : skip + size].view(dtype).reshape(shape)


def stored(leaf: jax.Array | np.ndarray, part: TensorSlice, *, plain: bool) -> Tensor:
    def rows(start, stop):
        return np.asarray(leaf[start:stop]) if plain else part.write(leaf)[start:stop]

    return Tensor(part.shape, np.dtype(leaf.dtype), rows)
