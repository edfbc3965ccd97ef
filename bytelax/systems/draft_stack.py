"""What EAGLE and DFlash have in common: trained layers that draft from states of a frozen model."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode.drafter import Drafter, DraftInput, expect
from bytelax.decode.target import Target, Text
from bytelax.models import kv_cache, layers
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches
from bytelax.models.layers import RMSNorm, head, project
from bytelax.options import DraftStackHead
from bytelax.systems.fitting import expect_heads
from bytelax.targets.module_target import ModuleTarget, kept_state


class DraftStack(nn.Module):
    """Layers that draft; the states of a byte are fused into one feature, which they read.

    Attributes:
      trunk: sizes of the stack.
      values: number of byte values.
      latent: whether the first of the fused states is a latent.
      execution: how the layers run.
    """

    trunk: TransformerConfig
    values: int
    latent: bool = False
    execution: Execution = Execution()

    def make_shared(self) -> None:
        """Creates the layers that both systems have; called in `setup`."""
        t = self.trunk
        self.fusion, self.inward = (project(t.dim, self.execution) for _ in range(2))
        if self.latent:
            self.latent_norm = RMSNorm(t.norm_eps)
        self.embedding_norm, self.norm = RMSNorm(t.norm_eps), RMSNorm(t.norm_eps)
        self.out = head(self.values, self.execution)

    def fuse(self, *states: Float[Array, "*B _"]) -> Float[Array, "*B D"]:
        """Fuses the states of each byte into one feature."""
        if self.latent:
            states = (self.latent_norm(states[0]), *states[1:])
        return self.fusion(jnp.concatenate(states, axis=-1))


class StackDrafter(Drafter):
    """Base of drafters with a stack that reads fused states of the target.

    Attributes:
      system: name of the system, under which its parameters lie.
    """

    system: str

    def fit(self, target: Target) -> Target:
        """Returns the target, which keeps the states that are fused."""
        expect(target, ModuleTarget, self)
        assert isinstance(target, ModuleTarget)
        config = target.module.config
        sizes = self._sizes(config)
        expect_heads(sizes.present, f"trained layers of {self.system}")
        return target.keeping(*sizes.fused, reach=sizes.stack(config.trunk).window)

    def weights_read(self, params: Any, target_params: Any) -> int:
        """Returns the number of weights that a pass of the stack reads."""
        return layers.weights(target_params["heads"][self.system])

    def _sizes(self, config) -> DraftStackHead:
        return vars(config.networks)[self.system]

    def _latest(
        self, inputs: DraftInput, network: DraftStack
    ) -> tuple[Float[Array, "B R D"], Int[Array, "B R"]]:
        """Features of the bytes before the pending one that are in reach, and their positions."""
        newest, length = inputs.text.length - 2, inputs.text.ids.shape[1]
        count = min(network.trunk.window or length, length)
        places = jnp.maximum(newest[:, None] - jnp.arange(count - 1, -1, -1), -1)
        depths = self._sizes(inputs.model.config).fused
        return network.fuse(*(kept_state(inputs, depth, places) for depth in depths)), places

    def _new(self, inputs: DraftInput, network: DraftStack, trial: Any) -> Float[Array, "B W D"]:
        """Features of the bytes of a window."""
        target: Any = inputs.target
        depths = self._sizes(target.module.config).fused
        return network.fuse(*(trial.hidden[target.keep.index(depth)] for depth in depths))


def no_keys(trunk: TransformerConfig, text: Text, *, ahead: int, dtype: Any) -> Caches:
    """Returns empty caches for a text and `ahead` bytes after it."""
    batch, length = text.ids.shape
    slots = kv_cache.ring_slots(window=trunk.window, width=ahead, capacity=length + ahead)
    return kv_cache.zeros(trunk, batch=batch, slots=slots, dtype=dtype)
