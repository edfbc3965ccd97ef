"""The base class of models: what loading, decoding, scoring and training call."""

from typing import Any

import flax.linen as nn
from jaxtyping import Array, Bool, Float, Int

from bytelax.calculator import Sizes
from bytelax.models import layers, patching
from bytelax.models.execution import Execution


class ByteModel(nn.Module):
    """Base of the Flax modules that predict next bytes.

    Attributes:
      config: sizes of the model, a `configs.ModelConfig`.
      execution: how it runs.
    """

    config: Any
    execution: Execution = Execution()

    def __call__(self, ids: Int[Array, "B S"]) -> Float[Array, "B S V"]:
        """Computes float32 next-byte logits after every position of whole texts."""
        raise NotImplementedError(f"{type(self).__name__}.__call__")

    def states(
        self, ids: Int[Array, "B S"], *, max_patches: int | None = None
    ) -> tuple[tuple[Float[Array, "B S _"], ...], Bool[Array, "B S"] | None]:
        """The states that prediction heads read, from the first layer to the last, and patches.

        Args:
          ids: whole texts.
          max_patches: capacity for the patches of a text; None allows one per byte.

        Returns:
          The states, and as in `predict` where patches end.
        """
        raise NotImplementedError(f"{type(self).__name__}.states")

    def predict(
        self, ids: Int[Array, "B S"], *, max_patches: int | None = None
    ) -> tuple[Float[Array, "B S V"], Bool[Array, "B S"] | None]:
        """Computes next-byte logits of whole texts, and whether each byte is the last of its patch.

        The latter is None for models without patches.
        """
        return self(ids), None

    def entropies(self, ids: Int[Array, "B S"]) -> Float[Array, "B S"]:
        """Computes next-byte entropies of whole texts, in nats."""
        return patching.next_byte_entropy(self(ids))

    @nn.nowrap
    def logical_axes(self) -> dict:
        """The logical axes of every parameter; see `pods.sharding`."""
        return layers.logical_axes(self)

    @nn.nowrap
    def device_shard(self, devices: int) -> Any:
        """The module that each device runs when `devices` of them share heads and hidden units.

        Raises:
          ValueError: the model cannot be divided so.
        """
        if devices > 1:
            raise ValueError(f"{type(self).__name__} cannot be divided among {devices} devices")
        return self

    @nn.nowrap
    def weights_per_pass(self, params: dict) -> Sizes:
        """Number of weights that one pass of each network reads, without embedding tables."""
        own = {name: part for name, part in params.items() if name != "heads"}
        return Sizes(decoder=layers.weights(own), encoder=0, global_=0)
