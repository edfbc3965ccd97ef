"""A loaded model: its module and parameters, and predictions without decoding."""

import functools
import math
import reprlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Float, Int

from bytelax import architectures
from bytelax.calculator import Sizes
from bytelax.compiling import own_settings
from bytelax.decode.target import Rewindable
from bytelax.models import fused, narrow
from bytelax.models.byte_model import ByteModel
from bytelax.models.configs import ModelConfig
from bytelax.models.weights import Weights, is_panels
from bytelax.pods import global_arrays, sharding
from bytelax.pods.configs import MeshConfig


class Model:
    """A loaded model: a Flax module with its parameters, as returned by `bytelax.load`.

    Attributes:
      module: the Flax module, for functional use: `module.apply({"params": params}, ids)` gives
        the logits, f32[B, S, V], of any model.
      mesh: the devices to decode on, from `sharding.make_mesh`; None uses the device that holds the
        parameters.
    """

    def __init__(self, module: ByteModel, params: dict, mesh: Mesh | None = None):
        self.module, self.mesh = module, mesh
        self._weights = Weights(params)

    @property
    def params(self) -> dict:
        """The parameters, as dicts of arrays.

        Arrays that are replaced in these dicts take effect at the next use of the model. Once
        compiled kernels have run, the model holds its weights in panels only, as long as nothing
        else holds these dicts, and makes the arrays again when they are read.
        """
        return self._weights.as_given()

    def on(self, mesh: Mesh | MeshConfig | str) -> "Model":
        """Returns the model on a mesh, as `bytelax.load` takes it, sharded for decoding.

        Raises:
          ValueError: it is no mesh; attention heads, hidden units or hash embeddings do not divide
            evenly; or the weights are int8.
        """
        mesh = sharding.as_mesh(mesh)
        if mesh == self.mesh:
            return self
        if self.quantized:
            raise ValueError(narrow.ONE_DEVICE)
        axes = architectures.logical_axes(self.module)
        places = sharding.shardings(self.params, axes, mesh, sharding.DECODE_RULES)
        return Model(self.module, global_arrays.put(self.params, places), mesh)

    @property
    def quantized(self) -> bool:
        """Whether weights are int8; see `bytelax.load`."""
        return any(x.dtype == jnp.int8 for x in jax.tree.leaves(self.held))

    @property
    def device_shard(self) -> ByteModel:
        """The module resized to one device's shard of the parameters."""
        if self.mesh is None:
            return self.module
        return self.module.device_shard(self.mesh.shape[sharding.TENSOR])

    @property
    def device_params(self) -> dict:
        """The parameters as compiled programs take them."""
        return self._weights.for_device()

    @property
    def held(self) -> dict:
        """The parameters as they lie in memory: as given, or as compiled programs take them."""
        return self._weights.held

    @property
    def device_module(self) -> ByteModel:
        """The module as compiled programs run it, on `device_params`; see `fused.decoding`."""
        return fused.decoding(self.module)

    def put(self, tree: Any, place: Callable[[Mesh], NamedSharding] = sharding.replicated) -> Any:
        """Puts host values on the devices of the model; `place` says where on a mesh."""
        if self.mesh is None:
            return jax.device_put(tree)
        return global_arrays.put(tree, place(self.mesh))

    def target(self) -> Rewindable:
        """Returns the target of a `Method` for this model, on one device of its mesh."""
        return architectures.target_of(self.device_shard)

    @property
    def weights_per_pass(self) -> Sizes:
        """Number of weights that a pass of each network reads, without the embedding tables."""
        return self.module.weights_per_pass(self.held)

    @property
    def config(self) -> ModelConfig:
        """The configuration of the module."""
        return self.module.config

    # Names of the package, looked up when they are called: imports run downwards.
    def generate(self, prompts: Any, **request: Any) -> Any:
        """Continues prompts: `bytelax.generate` of this model."""
        return sys.modules["bytelax"].generate(self, prompts, **request)

    def score(self, texts: Any, **how: Any) -> Any:
        """Scores texts: `bytelax.score` of this model."""
        return sys.modules["bytelax"].score(self, texts, **how)

    def __repr__(self) -> str:
        leaves = jax.tree.leaves(self.held, is_leaf=is_panels)
        size = sum(math.prod(leaf.shape) for leaf in leaves)
        arrays = (x.values if is_panels(x) else x for x in leaves)
        dtypes = {str(x.dtype) for x in arrays} - {"uint16"}  # the bits of tables in bfloat16
        held = f"{size / 1e6:.3g}M parameters, {', '.join(sorted(dtypes))}"
        devices = "one device" if self.mesh is None else f"a mesh of {dict(self.mesh.shape)}"
        return (
            f"Model({type(self.module).__name__}, {held})\n"
            f"  reads {self.config.max_bytes - 1} bytes, on {devices}\n"
            "  model.generate, model.score; model.module, model.params for functional use"
        )

    def logits(self, ids: Int[Array | np.ndarray, "B S"]) -> Float[Array, "B S V"]:
        """Returns next-byte logits after each position of whole texts, float32.

        Raises:
          ValueError: the ids are not a batch of texts, or not of the vocabulary.
        """
        return _predict(self.device_module, self.device_params, self._placed(ids, "B S"))[0]

    def entropies(self, ids: Int[Array | np.ndarray, "B S"]) -> Float[Array, "B S"]:
        """Returns next-byte entropies in nats.

        They are those of the entropy model, if a BLT has one, and otherwise the model's own.

        Raises:
          ValueError: as in `logits`.
        """
        return _entropies(self.device_module, self.device_params, self._placed(ids, "B S"))

    def patch_lengths(self, ids: Int[Array | np.ndarray, " S"]) -> list[int]:
        """Returns the number of bytes in each patch of one text.

        The byte that follows the text counts, so the lengths sum to S + 1.

        Raises:
          TypeError: the model has no patches.
          ValueError: the ids are not those of one text, or not of the vocabulary.
        """
        ids = self._placed(ids, "S")
        closes = _predict(self.device_module, self.device_params, ids[None])[1]
        if closes is None:
            raise TypeError("the model has no patches")
        starts = np.flatnonzero(jax.device_get(closes)[0]) + 1
        return np.diff(starts, prepend=0, append=len(ids) + 1).tolist()

    def _placed(self, ids, axes):
        """Ids on the device, int32; raises ValueError for other dtypes or axes."""
        ids = ids if isinstance(ids, jax.Array) else np.asarray(ids)
        given = f"{ids.dtype}[{','.join(map(str, ids.shape))}]"
        if ids.ndim != len(axes.split()) or not jnp.issubdtype(ids.dtype, jnp.integer):
            raise ValueError(f"ids are integers [{axes}], got {given}")
        if not ids.size:
            raise ValueError(f"there are no ids, got {given}")
        size, known = self.config.vocab_size, not isinstance(ids, jax.core.Tracer)
        here = jax.device_get(ids) if known else ids
        if known and not 0 <= here.min() <= here.max() < size:
            raise ValueError(f"ids lie in 0..{size - 1}, got {here.min()}..{here.max()}")
        if isinstance(ids, jax.Array):
            return ids.astype(jnp.int32)
        return self.put(ids.astype(np.int32))


def check_model(model: Any) -> None:
    """Raises ValueError for anything but a `Model`, such as the name of one, and within a trace."""
    if not isinstance(model, Model):
        got = reprlib.repr(model) if isinstance(model, str) else f"a {type(model).__name__}"
        raise ValueError(f"a model comes from bytelax.load, got {got}")
    with jax.transfer_guard("allow"):  # a user's guard is for arrays, not for this scalar
        traced = isinstance(jax.device_put(0), jax.core.Tracer)  # which compiles nothing
    if traced:
        raise ValueError(
            "this function runs programs of its own, and cannot be a part of another: within "
            "jax.jit use decode.Method, or model.module.apply"
        )


@functools.partial(jax.jit, static_argnums=0)
@own_settings()
def _predict(module, params, ids):
    return module.apply({"params": params}, ids, method="predict")


@functools.partial(jax.jit, static_argnums=0)
@own_settings()
def _entropies(module, params, ids):
    return module.apply({"params": params}, ids, method="entropies")
