"""A loaded model: module, parameters, and what one asks of them outside of decoding."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from bytelax.calculator import Sizes
from bytelax.decode.target import Rewindable
from bytelax.models import architectures
from bytelax.pods import global_arrays, sharding


@dataclasses.dataclass(frozen=True)
class Model:
    """What `bytelax.load` returns.

    Attributes:
      module: the Flax module, for functional use: `module.apply({"params": params}, ids)`.
      params: its parameters.
      mesh: the devices that it decodes on, from `sharding.make_mesh`; None: the one that its
        parameters are on.
    """

    module: architectures.Module
    params: dict
    mesh: Mesh | None = None

    def on(self, mesh: Mesh) -> "Model":
        """The model on a mesh, its parameters split as decoding wants them.

        Raises:
          ValueError: its heads, hidden units or hash embeddings do not divide evenly.
        """
        if mesh == self.mesh:
            return self
        axes = self.module.logical_axes()
        places = sharding.shardings(self.params, axes, mesh, sharding.DECODE_RULES)
        return dataclasses.replace(self, params=global_arrays.put(self.params, places), mesh=mesh)

    @property
    def part(self) -> "Model":
        """This model with `module` resized to one device's shard; `params` stay global."""
        if self.mesh is None:
            return self
        module = self.module.device_shard(self.mesh.shape[sharding.TENSOR])
        return dataclasses.replace(self, module=module)

    def target(self) -> Rewindable:
        """What decodes with this model: the target of a `Method`, on one device of its mesh."""
        return self.part.module.target()

    @functools.cached_property
    def weights_per_pass(self) -> Sizes:
        """Weights that a pass of each network reads; embedding tables are looked up, not read."""
        return self.module.weights_per_pass(self.params)

    @property
    def config(self) -> architectures.Config:
        return self.module.config

    def logits(self, ids: Int[Array | np.ndarray, "B S"]) -> Float[Array, "B S V"]:
        """Next-byte logits after each position of whole texts, float32."""
        return _predict(self.module, self.params, jnp.asarray(ids, jnp.int32))[0]

    def entropies(self, ids: Int[Array | np.ndarray, "B S"]) -> Float[Array, "B S"]:
        """Next-byte entropies in nats: the entropy model's for a BLT that has one, else its own."""
        return _entropies(self.module, self.params, jnp.asarray(ids, jnp.int32))

    def patch_lengths(self, ids: Int[Array | np.ndarray, " S"]) -> list[int]:
        """Bytes in each patch of one text; the byte to come counts, so they sum to S + 1.

        Raises:
          TypeError: the model has no patches.
        """
        closes = _closes(self.module, self.params, jnp.asarray(ids, jnp.int32)[None])
        if closes is None:
            raise TypeError("a plain byte transformer has no patches")
        starts = np.flatnonzero(np.asarray(closes[0])) + 1
        return np.diff(starts, prepend=0, append=len(ids) + 1).tolist()


@functools.partial(jax.jit, static_argnums=0)
def _predict(module, params, ids):
    return module.apply({"params": params}, ids, method="predict")


@functools.partial(jax.jit, static_argnums=0)
def _closes(module, params, ids):
    return module.apply({"params": params}, ids, method="predict")[1]


@functools.partial(jax.jit, static_argnums=0)
def _entropies(module, params, ids):
    return module.apply({"params": params}, ids, method="entropies")
