"""The Llama-style transformer stack that all of bytelax's networks consist of.

Pre-norm blocks, SwiGLU, no biases, grouped-query attention, interleaved rotary positions.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.models import kv_cache
from bytelax.models.block import Block, RematBlock
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span


@dataclasses.dataclass(frozen=True)
class LayerRange:
    """Which blocks of a stack run.

    Attributes:
      first: index of the first block that runs; its input is the output of the block before.
      last: index after the last block that runs; None runs to the end of the stack.
      no_attention: indices of blocks whose attention is skipped.
      no_mlp: indices of blocks whose SwiGLU is skipped.
    """

    first: int = 0
    last: int | None = None
    no_attention: tuple[int, ...] = ()
    no_mlp: tuple[int, ...] = ()


ALL = LayerRange()


class Transformer(nn.Module):
    """A stack of blocks without embedding, final norm or output layer."""

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        # Layers are unrolled because a scan over layers copies the caches on CPU.
        block = self.execution.layer(RematBlock if self.execution.remat else Block)
        self.layers = [block(self.config, self.execution) for _ in range(self.config.layers)]

    def __call__(
        self,
        x: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
        block_kv: int | None = None,
        layers: LayerRange = ALL,
    ) -> tuple[Float[Array, "B W D"], Caches | None]:
        """Runs the stack over a window.

        Args:
          x: hidden states before the first block that runs.
          caches: one cache per block; None for whole texts.
          span: positions of the window and what each of them attends to.
          block_kv: as in `verify_attention`.
          layers: which blocks run.

        Returns:
          Hidden states after the last block that runs, and the caches with the window written to
          them. The caches of blocks whose attention does not run are returned unchanged.
        """
        whole = caches is None and layers == ALL and not self.is_initializing()
        if self.execution.scan and whole and self.config.layers > 1:
            return self._scanned(x, span=span, block_kv=block_kv), None
        hidden, caches = self.states(x, caches, span=span, block_kv=block_kv, layers=layers)
        return hidden[-1], caches

    def states(
        self,
        x: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
        block_kv: int | None = None,
        layers: LayerRange = ALL,
    ) -> tuple[tuple[Float[Array, "B W D"], ...], Caches | None]:
        """As `__call__`, with the hidden states before the first block and after each block."""
        how: dict[str, Any] = {
            "positions": span.positions if span.turns is None else span.turns,
            "attend": functools.partial(kv_cache.attend, span=span, block_kv=block_kv),
        }
        hidden: list[Any] = [x]
        written: list[Any] = list(caches or [None] * len(self.layers))
        for index in range(len(self.layers))[layers.first : layers.last]:
            one, attention = self.layers[index], index not in layers.no_attention
            if attention and index not in layers.no_mlp:
                x, written[index] = one(x, written[index], **how)
            elif attention:
                x, written[index] = one.attends(x, written[index], **how)
            elif index not in layers.no_mlp:
                x = one.transforms(x)
            hidden.append(x)
        return tuple(hidden), caches and tuple(written)

    def _scanned(self, x, **how):
        """Runs the blocks as a `lax.scan`, so that XLA compiles only one of them.

        Every block keeps its own parameters, and each pass stacks them. This copy is cheap compared
        with a training step, but not compared with a window of a few bytes.
        """
        first_block = self.clone(parent=None)

        def step(x, params):
            return first_block.apply({"params": params}, x, layers=LayerRange(last=1), **how)

        params = self.variables["params"]
        layers = [{"layers_0": params[f"layers_{index}"]} for index in range(self.config.layers)]
        return jax.lax.scan(step, x, stacked(layers))[0]


def stacked(layers: Sequence[Any]) -> Any:
    """Stacks trees of the same structure into one tree, along a new first axis."""
    return jax.tree.map(lambda *each: jnp.stack(each), *layers)
