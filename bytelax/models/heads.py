"""Prediction heads with which a byte transformer drafts for itself.

They read the trunk's hidden states and are trained while it is frozen. All of them give the logits
of byte values, never of specials.
"""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import Dense, LayerNorm, RMSNorm, head, parameter, project
from bytelax.models.transformer import Transformer
from bytelax.models.transformer_config import TransformerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Which heads there are. Depths count blocks: the state at depth n is what n blocks made.

    Attributes:
      exits: depths with an exit head.
      bytes_ahead: multi-byte heads: how many bytes after the next one are predicted at once.
      correction: the multi-byte heads have a table of the byte before.
      two_byte: depths whose state a two-byte-ahead head reads.
      draft_layer: depths of the low, middle and high state that a draft layer fuses; None: no
        draft layer.
    """

    exits: tuple[int, ...] = ()
    bytes_ahead: int = 0
    correction: bool = False
    two_byte: tuple[int, ...] = ()
    draft_layer: tuple[int, int, int] | None = None

    def check(self, layers: int) -> None:
        """Raises ValueError for a depth that a trunk of `layers` blocks does not have."""
        for name, depths, most in (
            ("exits", self.exits, layers - 1),
            ("two_byte", self.two_byte, layers),
            ("draft_layer", self.draft_layer or (), layers),
        ):
            for depth in depths:
                if not 1 <= depth <= most:
                    raise ValueError(f"{name} must lie in 1..{most}, got {depth}")
        if self.bytes_ahead < 0:
            raise ValueError(f"bytes_ahead must be at least 0, got {self.bytes_ahead}")
        if self.correction and not self.bytes_ahead:
            raise ValueError("the correction belongs to multi-byte heads; give bytes_ahead")


class Heads(nn.Module):
    """The heads of a trunk. Each method is the forward pass of one of them."""

    config: HeadsConfig
    trunk: TransformerConfig
    vocab_size: int
    execution: Execution = Execution()

    def setup(self):
        c, dim = self.config, self.trunk.dim
        values = self.vocab_size - vocab.OFFSET
        self.exit_heads = {str(depth): ExitHead(values) for depth in c.exits}
        self.ahead_heads = [MultiByteHead(dim, values) for _ in range(c.bytes_ahead)]
        if c.correction:
            shape = (c.bytes_ahead, values, values)
            zeros, axes = nn.initializers.zeros, (None, "byte", "byte")
            self.correction = parameter(self, "correction", zeros, shape, axes)
        self.two_byte_heads = {str(depth): TwoByteHead(dim) for depth in c.two_byte}
        if c.draft_layer:
            self.draft_layer = DraftLayer(self.trunk, values, self.execution)

    def exit(self, depth: int, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        """Next byte from the state at a depth."""
        return with_specials(self.exit_heads[str(depth)](hidden))

    def ahead(
        self, index: int, hidden: Float[Array, "*B D"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B V"]:
        """The byte `index` + 2 places on, from the final state.

        Args:
          index: which head, from 0.
          hidden: final states, behind the trunk's last norm.
          before: id of the byte before the predicted one, for the correction.
        """
        logits = self.ahead_heads[index](hidden)
        if self.config.correction:
            logits += self.correction[index][jnp.maximum(before - vocab.OFFSET, 0)]
        return with_specials(logits)

    def two_byte(
        self,
        depth: int,
        hidden: Float[Array, "*B D"],
        embedded: Float[Array, "*B D"],
    ) -> Float[Array, "*B D"]:
        """Final state of the byte after the next, for the trunk's own output to read.

        Args:
          depth: of the state.
          hidden: states.
          embedded: the trunk's embedding of the next byte.
        """
        return self.two_byte_heads[str(depth)](hidden, embedded)

    def __call__(self, hidden: Float[Array, "B S D"], ids: Int[Array, "B S"], span: Span) -> None:
        """Runs every head once, so that `init` makes all parameters."""
        for depth in self.config.exits:
            self.exit(depth, hidden)
        for index in range(self.config.bytes_ahead):
            self.ahead(index, hidden, ids)
        for depth in self.config.two_byte:
            self.two_byte(depth, hidden, hidden)
        if self.config.draft_layer:
            self.draft_layer(self.draft_layer.fuse(hidden, hidden, hidden), hidden, span=span)


class ExitHead(nn.Module):
    """Layer norm and one linear map: an early exit's own output."""

    values: int

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B N"]:
        normed = LayerNorm(name="norm")(hidden)
        return head(self.values, name="out")(normed).astype(jnp.float32)


class MultiByteHead(nn.Module):
    """W (h + silu(U h)), U zero at first: Medusa (Cai et al., arXiv 2401.10774, section 2.1.1)."""

    dim: int
    values: int

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B N"]:
        zeros = nn.initializers.zeros
        step = Dense((self.dim,), ("embed", None), init=zeros, name="step")(hidden)
        hidden = hidden + nn.silu(step)
        return head(self.values, name="out")(hidden).astype(jnp.float32)


class TwoByteHead(nn.Module):
    """A projection of [state; embedding of the next byte] to where the shared output reads."""

    dim: int

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "*B D"], embedded: Float[Array, "*B D"]
    ) -> Float[Array, "*B D"]:
        return project(self.dim, name="project")(jnp.concatenate([hidden, embedded], axis=-1))


class DraftLayer(nn.Module):
    """One block that predicts the next byte from fused states, then from its own outputs.

    EAGLE-3 (Li et al., arXiv 2503.01840): the low, middle and high states of a byte are fused into
    one feature; the block reads it beside the embedding of the byte that followed.
    """

    trunk: TransformerConfig
    values: int
    execution: Execution = Execution()

    def setup(self):
        t = self.trunk
        self.fusion = project(t.dim)
        self.feature_norm, self.embedding_norm = RMSNorm(t.norm_eps), RMSNorm(t.norm_eps)
        self.inward = project(t.dim)
        self.block = Transformer(dataclasses.replace(t, layers=1), self.execution)
        self.norm = RMSNorm(t.norm_eps)
        self.out = head(self.values)

    def fuse(
        self,
        low: Float[Array, "*B D"],
        middle: Float[Array, "*B D"],
        high: Float[Array, "*B D"],
    ) -> Float[Array, "*B D"]:
        return self.fusion(jnp.concatenate([low, middle, high], axis=-1))

    def __call__(
        self,
        feature: Float[Array, "B W D"],
        embedded: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
    ) -> tuple[Float[Array, "B W V"], Float[Array, "B W D"], Caches | None]:
        """Logits of the byte after each embedded one, the next features, and the caches.

        Args:
          feature: of each byte: from `fuse`, or this layer's own for the byte before.
          embedded: the trunk's embedding of the byte that followed it.
          caches: of this layer.
          span: positions of the first of the two.
        """
        x, caches = self.block(self._joined(feature, embedded), caches, span=span)
        return self._logits(x), x, caches

    def unroll(
        self, features: Float[Array, "B S D"], embedded: Float[Array, "B S D"], steps: int
    ) -> list[Float[Array, "B S V"]]:
        """As drafting runs on whole texts: logits of each step, the later ones on own outputs.

        Step j at byte t reads what step j - 1 gave for byte t - 1. It sees fused features up to
        byte t - j, and behind them one byte of each earlier step: what the cache holds when j bytes
        have been drafted.

        Args:
          features: from `fuse`.
          embedded: the trunk's embedding of the byte that followed each.
          steps: how many.
        """
        positions = jnp.broadcast_to(jnp.arange(features.shape[1]), features.shape[:2])
        attend = functools.partial(_attend_to_own_outputs, window=self.trunk.window)
        before, outputs = (), []
        for _ in range(steps):
            x, before = self.block.layers[0](
                self._joined(features, embedded), before, positions=positions, attend=attend
            )
            outputs.append(self._logits(x))
            features = jnp.roll(x, 1, axis=1)
        return outputs

    def _joined(self, feature, embedded):
        pair = [self.feature_norm(feature), self.embedding_norm(embedded)]
        return self.inward(jnp.concatenate(pair, axis=-1))

    def _logits(self, x):
        return with_specials(self.out(self.norm(x)).astype(jnp.float32))


def _attend_to_own_outputs(queries, keys, values, before, *, window):
    """An `Attend` whose cache is the keys and values of the steps before, oldest first."""
    steps = (*before, (keys, values))
    age = len(steps) - 1
    length, heads, dim = queries.shape[1:]
    group = heads // keys.shape[2]

    def of_heads(x):
        return jnp.repeat(x, group, axis=2)

    place = jnp.arange(length)
    back = place[:, None] - place  # how far each key lies behind each query
    seen = (back >= age) & (back < (window or length))
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, of_heads(steps[0][0]))
    scores = jnp.where(seen, scores.astype(jnp.float32), -jnp.inf)
    own = [
        [of_heads(jnp.roll(x, age - index, axis=1)) for x in step]
        for index, step in enumerate(steps[1:], 1)
    ]
    diagonal = [jnp.einsum("bqhd,bqhd->bhq", queries, k).astype(jnp.float32) for k, _ in own]
    scores = jnp.concatenate([scores, *(x[..., None] for x in diagonal)], axis=-1)
    # A row that sees nothing stands before the text; its loss is not counted.
    weights = jax.nn.softmax(jnp.maximum(scores * dim**-0.5, -1e30)).astype(queries.dtype)
    attended = jnp.einsum("bhqk,bkhd->bqhd", weights[..., :length], of_heads(steps[0][1]))
    for index, (_, v) in enumerate(own):
        attended += weights[..., length + index].swapaxes(1, 2)[..., None] * v
    return attended, steps


def with_specials(logits: Float[Array, "*B N"]) -> Float[Array, "*B V"]:
    """Logits of byte values as those of ids: no special has a chance."""
    pad = [(0, 0)] * (logits.ndim - 1) + [(vocab.OFFSET, 0)]
    return jnp.pad(logits, pad, constant_values=-jnp.inf)


def only_bytes(logits: Float[Array, "*B V"]) -> Float[Array, "*B V"]:
    """Logits without those of specials."""
    return with_specials(logits[..., vocab.OFFSET :])
