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
from jaxtyping import Array, Bool, Float, Int

from bytelax.models import kv_cache
from bytelax.models.attention import Attend, Cache, SelfAttention
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import Dense, Normed, RMSNorm


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


class SwiGLU(nn.Module):
    """The gated MLP `down(silu(gate(x)) * up(x))` (arXiv 2002.05202), gate and up in one matrix."""

    config: TransformerConfig
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, x: Normed, *, onto: Float[Array, "B W D"] | None = None
    ) -> Float[Array, "B W D"]:
        """Computes the update of the residual stream, and adds it to `onto` if that is given."""
        c, precision = self.config, self.execution.precision
        gate_up = Dense((2, c.ffn_dim), ("embed", None, "hidden"), precision, name="gate_up")
        down = Dense((c.dim,), ("hidden", "embed"), precision, name="down")
        return self.execution.add(down, gate_up(x, gated=True), onto)


class Block(nn.Module):
    """A pre-norm transformer block: `x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    config: TransformerConfig
    execution: Execution = Execution()

    def __call__(
        self,
        x: Float[Array, "B W D"],
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
        attends: bool | Bool[Array, ""] = True,
        transforms: bool | Bool[Array, ""] = True,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """Runs the block over a window.

        Args:
          x: hidden states before the block.
          cache: cache of its attention.
          positions: positions for the rotary phases.
          attend: decides which positions each query attends to.
          attends, transforms: whether the attention and the SwiGLU run. With the literal False the
            half is not traced, and the cache stays as it is. With an array the half is computed,
            and contributes 0 where the array is False.

        Returns:
          Hidden states after the block, and its cache with the window written to it.
        """

        run = functools.partial(
            Block.halves,
            positions=positions,
            attend=attend,
            attends=attends,
            transforms=transforms,
        )
        run = nn.remat(run) if self.execution.remat else run
        x, cache = run(self, x, cache)
        return self.execution.by_rows(x), cache

    @nn.compact
    def halves(self, x, cache, *, positions, attend, attends, transforms):
        """The attention and the SwiGLU with their residuals: what `nn.remat` is applied to."""
        eps = self.config.norm_eps
        if attends is not False:
            attention = SelfAttention(self.config, self.execution, name="attention")
            normed = RMSNorm(eps, name="attention_norm").before(x)
            onto = x if attends is True else None
            attended, cache = attention(
                normed, cache, positions=positions, attend=attend, onto=onto
            )
            x = attended if attends is True else x + jnp.where(attends, attended, 0)
        if transforms is not False:
            mlp = SwiGLU(self.config, self.execution, name="mlp")
            normed = RMSNorm(eps, name="mlp_norm").before(x)
            transformed = mlp(normed, onto=x if transforms is True else None)
            x = transformed if transforms is True else x + jnp.where(transforms, transformed, 0)
        return x, cache


class Transformer(nn.Module):
    """A stack of blocks without embedding, final norm or output layer."""

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        # Layers are unrolled because a scan over layers copies the caches on CPU.
        self.layers = [Block(self.config, self.execution) for _ in range(self.config.layers)]

    def __call__(
        self,
        x: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
        block: int | None = None,
        layers: LayerRange = ALL,
    ) -> tuple[Float[Array, "B W D"], Caches | None]:
        """Runs the stack over a window.

        Args:
          x: hidden states before the first block that runs.
          caches: one cache per block; None for whole texts.
          span: positions of the window and what each of them attends to.
          block: as in `verify_attention`.
          layers: which blocks run.

        Returns:
          Hidden states after the last block that runs, and the caches with the window written to
          them. The caches of blocks whose attention does not run are returned unchanged.
        """
        whole = caches is None and layers == ALL and not self.is_initializing()
        if self.execution.scan and whole and self.config.layers > 1:
            return self._scanned(x, span=span, block=block), None
        hidden, caches = self.states(x, caches, span=span, block=block, layers=layers)
        return hidden[-1], caches

    def states(
        self,
        x: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
        block: int | None = None,
        layers: LayerRange = ALL,
        runs: Bool[Array, "2 L"] | None = None,
    ) -> tuple[tuple[Float[Array, "B W D"], ...], Caches | None]:
        """As `__call__`, but returns the hidden states before the first block and after each block.

        `runs` selects at run time which attentions (`runs[0]`) and which SwiGLUs (`runs[1]`)
        contribute. Unlike those that `part` skips, the others are computed and then replaced by 0.
        """
        attend = functools.partial(kv_cache.attend, span=span, block=block)
        positions = span.positions if span.turns is None else span.turns
        last = len(self.layers) if layers.last is None else layers.last
        hidden: list[Array] = [x]
        written: list[Any] = list(caches or [None] * len(self.layers))
        for index in range(layers.first, last):
            gates = (True, True) if runs is None else runs[:, index]
            x, written[index] = self.layers[index](
                x,
                written[index],
                positions=positions,
                attend=attend,
                attends=gates[0] if index not in layers.no_attention else False,
                transforms=gates[1] if index not in layers.no_mlp else False,
            )
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
