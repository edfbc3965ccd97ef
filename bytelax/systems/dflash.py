"""DFlash: trained layers on the model's states draft a block in one pass.

Source: arXiv 2602.06036; with the table of the byte before, DSpark (arXiv 2607.05147).
"""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.decode.draft import draft_of, draw, no_passes, scanned
from bytelax.decode.method import Method
from bytelax.models import block_attention, kv_cache
from bytelax.models.block_attention import Blocks
from bytelax.models.configs import ModelConfig
from bytelax.models.execution import Execution, rows_of
from bytelax.models.kv_cache import Caches
from bytelax.models.layers import parameter, with_specials
from bytelax.models.transformer import Transformer
from bytelax.options import DFlash
from bytelax.systems.draft_stack import DraftStack, StackDrafter, no_keys
from bytelax.systems.fitting import Model
from bytelax.systems.trained import Drafted, Texts, bound, texts_like

_SMALL, _ZEROS = nn.initializers.normal(0.02), nn.initializers.zeros

# The network


class DFlashNetwork(DraftStack):
    """Predicts the K bytes after the pending one in one pass.

    The queries are the pending byte, whose id alone is known, and K masks that differ in their
    positions. They attend to one another and to the bytes before the pending one, whose keys
    and values each layer computes from the fused hidden states. Each byte is predicted
    independently of the others in the block; `conditioned` then conditions it on the byte before.

    Source: DFlash (arXiv 2602.06036) for the states of the target as keys and values of every
    layer; DSpark (arXiv 2607.05147) for the table of the byte before.

    Attributes:
      rank: rank of the table; None is a full table with a row for each byte, 0 is no table.
    """

    rank: int | None = None

    def setup(self):
        self.make_shared()
        self.mask = parameter(self, "mask", _SMALL, (self.trunk.dim,), ("norm",))
        self.blocks = Transformer(self.trunk, self.execution)
        # The table adds nothing at first.
        values, rank = self.values, self.rank
        if rank is None:
            self.table = parameter(self, "table", _ZEROS, (values, values), ("byte", "byte"))
        elif rank:
            self.left = parameter(self, "left", _SMALL, (values, rank), ("byte", None))
            self.right = parameter(self, "right", _ZEROS, (rank, values), (None, "byte"))

    def table_row(self, before: Int[Array, "*B"]) -> Float[Array, "*B N"]:
        """Returns what the id before a byte adds to its logits of byte values."""
        value = jnp.maximum(before - vocab.OFFSET, 0)
        if self.rank is None:
            return rows_of(self.table, value).astype(jnp.float32)
        if not self.rank:
            return jnp.zeros((*before.shape, self.values), jnp.float32)
        return (rows_of(self.left, value) @ self.right).astype(jnp.float32)

    def conditioned(
        self, logits: Float[Array, "*B N"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B V"]:
        """Returns logits of ids from those of byte values and the id before each byte."""
        return with_specials(logits + self.table_row(before))

    def remember(
        self, features: Float[Array, "B S D"], caches: Caches, *, positions: Int[Array, "B S"]
    ) -> Caches:
        """Writes the keys and values of bytes to the caches; position -1 writes nothing.

        Args:
          features: fused states of the bytes, from `fuse`.
          caches: one for each layer.
          positions: positions of the bytes.
        """

        new = self._keys_values(features, positions)
        return tuple(
            cache and kv_cache.write(cache, keys, values, positions)
            for cache, (keys, values) in zip(caches, new, strict=True)
        )

    def block(
        self,
        embedded: Float[Array, "B E"],
        caches: Caches,
        *,
        position: Int[Array, " B"],
        size: int,
    ) -> tuple[Float[Array, "B K N"], Caches]:
        """Returns logits of the K byte values after the pending one, and caches with the block.

        Args:
          embedded: the trunk's embedding of the pending byte.
          caches: from `remember`, with all bytes before the pending one.
          position: position of the pending byte.
          size: K.
        """
        places = position[:, None] + jnp.arange(size + 1)
        span = kv_cache.with_block(kv_cache.causal_span(places, window=self.trunk.window), 0)
        attend = functools.partial(kv_cache.attend, span=span)
        logits, caches = self._run(embedded[:, None], caches, span.positions, size, attend)
        return logits[:, 0], caches

    def __call__(
        self,
        states: tuple[Float[Array, "B S _"], ...],
        embedded: Float[Array, "B M E"],
        before: Int[Array, "B M K"],
        start: Int[Array, "B M"],
    ) -> Float[Array, "B M K V"]:
        """Predicts many blocks of whole texts, as drafting would, for training.

        Args:
          states: states of all bytes, to be fused.
          embedded: the trunk's embedding of the pending byte of each block.
          before: the id before each byte of the blocks; the pending one comes first.
          start: position of the pending byte, at least 1. Of that byte only the embedding is read,
            and nothing of the bytes after it.
        """
        features, size = self.fuse(*states), before.shape[2]
        positions = jnp.broadcast_to(jnp.arange(features.shape[1]), features.shape[:2])
        span = kv_cache.causal_span(positions, window=self.trunk.window)
        cells = jnp.zeros((*start.shape, size + 1), jnp.int32)
        blocks = Blocks(cells, start, jnp.full_like(start, size + 1))

        def attend(projections, clean):
            cells = projections.rotated()
            return block_attention.attend_cells(*cells, *clean, span=span, blocks=blocks), None

        clean = self._keys_values(features, positions)
        places = blocks.positions().reshape(start.shape[0], -1)
        return self.conditioned(self._run(embedded, clean, places, size, attend)[0], before)

    def _keys_values(self, features, positions):
        """The keys and values of each layer."""
        layers = self.blocks.layers
        return tuple(layer.projections(features, positions).rotated()[1:] for layer in layers)

    def _run(self, embedded, caches, positions, size, attend):
        batch, number, _ = embedded.shape
        pending = self.inward(self.embedding_norm(embedded))[:, :, None]
        masks = jnp.broadcast_to(self.mask, (batch, number, size, self.trunk.dim))
        x = jnp.concatenate([pending, masks.astype(pending.dtype)], axis=2)
        x, written = x.reshape(batch, -1, self.trunk.dim), []
        for index, cache in enumerate(caches):
            x, cache = self.blocks.layers[index](x, cache, positions=positions, attend=attend)
            written.append(cache)
        x = x.reshape(batch, number, size + 1, -1)[:, :, 1:]
        return self.out(self.norm(x)).astype(jnp.float32), tuple(written)


def network(config: ModelConfig, execution: Execution) -> DFlashNetwork:
    """Returns the network of a model."""
    sizes, values = config.networks.dflash, config.vocab_size - vocab.OFFSET
    stack, rank = sizes.stack(config.trunk, sizes.layers), sizes.table_rank
    return DFlashNetwork(stack, values, sizes.latent, execution, rank)


def example(config: ModelConfig) -> tuple:
    """Returns arguments to initialise the network with: one block of one byte."""
    states, embedded, ids = texts_like(config)
    fused = tuple(states[depth] for depth in config.networks.dflash.fused)
    return fused, embedded[:, :1], ids[:, :1, None], 1 + ids[:, :1]


# Its loss


def loss(network: DFlashNetwork, texts: Texts) -> list[Drafted]:
    """Returns the predictions of random blocks, place by place."""
    sizes = texts.model.config.networks.dflash
    pending, ids = texts.starts(sizes.block_size), texts.ids
    embedded = texts.model.embed(jnp.take_along_axis(ids, pending, axis=1))
    places = [pending + index for index in range(sizes.block_size)]
    before = jnp.stack([jnp.take_along_axis(ids, place, axis=1) for place in places], axis=2)
    states = tuple(texts.hidden[depth] for depth in sizes.fused)
    logits = network(states, embedded, before, pending)
    return [
        Drafted(f"dflash_{index + 1}", index + 1, logits[:, :, index], place + 1)
        for index, place in enumerate(places)
    ]


# The drafter


@dataclasses.dataclass(frozen=True)
class DFlashDrafter(StackDrafter):
    """Predicts K bytes in one pass, then samples them from left to right.

    The pass predicts the bytes independently. The table then adds to the logits of each byte a row
    that depends on the byte sampled before it. The reported distribution is the one sampled from.
    The state is the keys and values of the bytes that the target has taken in, for each layer.

    Attributes:
      draft_length: K, the number of bytes drafted.
    """

    draft_length: int

    system = "dflash"

    def fit(self, target):
        target = super().fit(target)
        trained = target.module.config.networks.dflash.block_size
        if not 1 <= self.draft_length <= trained:
            raise ValueError(
                f"DFlash was trained on blocks of up to {trained} bytes, got {self.draft_length}"
            )
        return target

    def init(self, inputs):
        model = inputs.model
        block = bound(inputs, network, "dflash")
        features, places = self._latest(inputs, block)
        # Windows and blocks are written after the text, also in rows that are done.
        ahead = max(inputs.target.window, model.config.networks.dflash.block_size + 1)
        empty = no_keys(block.trunk, inputs.text, ahead=ahead, dtype=features.dtype)
        return block.remember(features, empty, positions=places)

    def propose(self, inputs, draft_state):
        model, text = inputs.model, inputs.text
        block = bound(inputs, network, "dflash")
        logits, caches = block.block(
            model.embed(text.pending[:, 0]),
            draft_state,
            position=text.length - 1,
            size=model.config.networks.dflash.block_size,  # as trained: a query sees all others
        )

        def step(before, place):
            logits, uniform = place
            logits = block.conditioned(logits, before)
            drawn = draw(logits[:, None], inputs.sampling, uniform[:, None])
            return drawn.ids[:, 0], drawn

        logits = logits[:, : self.draft_length].swapaxes(0, 1)
        uniforms = inputs.uniforms(self.draft_length)
        _, drawn = jax.lax.scan(step, text.pending[:, 0], (logits, uniforms.T))
        none = no_passes(len(text.length))
        draft = draft_of(
            scanned(drawn),
            passes=none._replace(draft_model=none.draft_model + 1),
        )
        return draft, caches

    def commit(self, inputs, draft_state, trial, count):
        # Rejected bytes lie after the text, where the next block and window overwrite them.
        block = bound(inputs, network, "dflash")
        features = self._new(inputs, block, trial)
        places = trial.state.length[:, None] + jnp.arange(features.shape[1])
        return block.remember(features, draft_state, positions=places)


def build(options: DFlash, model: Model) -> Method:
    """Returns the method that its options describe."""
    length = options.draft_length
    length = model.config.networks.dflash.block_size if length is None else length
    return Method(model.target(), DFlashDrafter(length))
