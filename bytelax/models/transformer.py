"""The Llama-style stack all of bytelax's networks are built of.

Pre-norm, SwiGLU, no biases, grouped-query attention, interleaved rotary positions.
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
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import Dense, RMSNorm
from bytelax.models.transformer_config import TransformerConfig


@dataclasses.dataclass(frozen=True)
class Part:
    """Which blocks of a stack run.

    Attributes:
      first: the first of them; the input is then what the blocks before it gave.
      last: the first that does not run; None runs to the end.
      no_attention: blocks whose attention is skipped.
      no_mlp: blocks whose SwiGLU is skipped.
    """

    first: int = 0
    last: int | None = None
    no_attention: tuple[int, ...] = ()
    no_mlp: tuple[int, ...] = ()


ALL = Part()


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)), gate and up in one matrix."""

    config: TransformerConfig
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, x: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
        c, precision = self.config, self.execution.precision
        gate_up = Dense((2, c.ffn_dim), ("embed", None, "hidden"), precision, name="gate_up")(x)
        hidden = nn.silu(gate_up[..., 0, :]) * gate_up[..., 1, :]
        down = Dense((c.dim,), ("hidden", "embed"), precision, name="down")(hidden)
        return self.execution.psum(down)


class Block(nn.Module):
    """x + attention(norm(x)), then + mlp(norm(.))."""

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
        """The hidden states behind the block, and its cache with the window in it.

        Args:
          x: hidden states before it.
          cache: of its attention.
          positions: for the rotary phases.
          attend: what each position sees.
          attends, transforms: whether the attention and the SwiGLU run. A half that is False is
            left out, cache and all; one that an array says does not run adds 0.
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
        """What `remat` computes again."""
        eps = self.config.norm_eps
        if attends is not False:
            attention = SelfAttention(self.config, self.execution, name="attention")
            attended, cache = attention(
                RMSNorm(eps, name="attention_norm")(x), cache, positions=positions, attend=attend
            )
            x = x + _gated(attended, attends)
        if transforms is not False:
            mlp = SwiGLU(self.config, self.execution, name="mlp")
            x = x + _gated(mlp(RMSNorm(eps, name="mlp_norm")(x)), transforms)
        return x, cache


class Transformer(nn.Module):
    """A stack of blocks without embedding, final norm or head."""

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        # Unrolled: on CPU a scan over layers would copy the caches.
        self.layers = [Block(self.config, self.execution) for _ in range(self.config.layers)]

    def __call__(
        self,
        x: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
        block: int | None = None,
        part: Part = ALL,
    ) -> tuple[Float[Array, "B W D"], Caches | None]:
        """The hidden states behind the stack, and the caches with the window in them.

        Caches of blocks that do not run, or not their attention, come back as they are.
        """
        whole = caches is None and part == ALL and not self.is_initializing()
        if self.execution.scan and whole and self.config.layers > 1:
            return self._scanned(x, span=span, block=block), None
        hidden, caches = self.states(x, caches, span=span, block=block, part=part)
        return hidden[-1], caches

    def states(
        self,
        x: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
        block: int | None = None,
        part: Part = ALL,
        runs: Bool[Array, "2 L"] | None = None,
    ) -> tuple[tuple[Float[Array, "B W D"], ...], Caches | None]:
        """As `__call__`, but with the hidden states before the first block and behind each.

        `runs` says as data which attentions and which SwiGLUs run; the others add 0.
        """
        attend = functools.partial(kv_cache.attend, span=span, block=block)
        positions = span.positions if span.turns is None else span.turns
        last = len(self.layers) if part.last is None else part.last
        hidden, written = [x], list(caches or [None] * len(self.layers))
        for index in range(part.first, last):
            gates = (True, True) if runs is None else runs[:, index]
            x, written[index] = self.layers[index](
                x,
                written[index],
                positions=positions,
                attend=attend,
                attends=gates[0] if index not in part.no_attention else False,
                transforms=gates[1] if index not in part.no_mlp else False,
            )
            hidden.append(x)
        return tuple(hidden), caches and tuple(written)

    def _scanned(self, x, **how):
        """A loop over the blocks, so that XLA compiles one of them.

        Every block keeps its own parameters, and each pass stacks them. The copy is small beside
        the work of a training step, but not beside that of a window of bytes.
        """
        first_block = self.clone(parent=None)

        def step(x, params):
            return first_block.apply({"params": params}, x, part=Part(last=1), **how)

        params = self.variables["params"]
        layers = [{"layers_0": params[f"layers_{index}"]} for index in range(self.config.layers)]
        return jax.lax.scan(step, x, stacked(layers))[0]


def stacked(layers: Sequence[Any]) -> Any:
    """Trees of one structure as one tree, with a new first axis."""
    return jax.tree.map(lambda *each: jnp.stack(each), *layers)


def _gated(x, runs):
    return x if runs is True else jnp.where(runs, x, 0)
