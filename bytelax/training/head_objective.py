"""Training objective of prediction heads: by default the distributions of the frozen model."""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from bytelax import vocab
from bytelax.models.blt import BLT
from bytelax.models.byte_lm import ByteLM
from bytelax.models.heads import RECENT
from bytelax.models.layers import with_specials
from bytelax.models.patching import nth_true
from bytelax.training.configs import HeadsLoss
from bytelax.training.objectives import Metrics, Objective, next_byte, patch_metrics, summed


class Drafted(NamedTuple):
    """What one head says of some bytes of each text, at one place of a draft."""

    name: str
    place: int  # in the draft, from 1
    logits: Float[Array, "B N V"]
    byte: Int[Array, "#B N"]  # positions of the bytes that it predicts, 1..S
    confidence: Float[Array, "B N 2"] | None = None  # what `Confidence` says of them


class Term(NamedTuple):
    """A part of the loss that judges no drafted byte."""

    name: str
    values: Float[Array, "B N"]
    there: Bool[Array, "B N"]
    weight: float = 1.0


class Said(NamedTuple):
    """What the model and all of its heads say of texts."""

    logits: Float[Array, "B S V"]  # the model's own
    drafted: list[Drafted]
    terms: list[Term]
    closes: Bool[Array, "B S"] | None  # ends of patches


@dataclasses.dataclass(frozen=True)
class HeadLoss(HeadsLoss, Objective):
    """Mean loss of all prediction heads of a model; its settings are the fields of `HeadsLoss`.

    The target of a head is the model's distribution of the byte that the head has to draft, which
    the model predicts at a later position of the same text. A drafted byte is accepted with
    probability sum(min(p, q)), which is logged for each head as `overlap_...`. How often the model
    and the head agree on the most likely byte is logged as `agreed_...`. A `Confidence` head learns
    to predict both, by cross-entropy.

    A head of latents is judged by what the decoder says of all bytes with its latents in place of
    the model's: `latents_1` follow on the model's own latents, `latents_2` on the head's own ones.
    It also learns to bring the keys and values that the decoder makes of them closer together.

    Attributes:
      module: a byte transformer or a BLT, with heads.
    """

    module: ByteLM | BLT

    def __post_init__(self):
        super().__post_init__()
        heads = self.module.config.heads
        if heads is None or not any((
            heads.exits, heads.bytes_ahead, heads.two_byte,
            heads.draft_layer, heads.draft_block, heads.block_table,
            heads.latents,
        )):  # fmt: skip
            raise ValueError("there are no heads to train: say which, such as heads.bytes_ahead")
        if self.joint and not isinstance(self.module, ByteLM):
            raise ValueError("joint training is for byte transformers; a BLT stays as it is")

    def loss(
        self, params: dict, ids: Int[Array, "B L"], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Metrics]:
        """Computes the loss of a batch of windows of N + 1 ids, and metrics to log."""
        if not self.joint:
            frozen = {name: part for name, part in params.items() if name != "heads"}
            params = jax.lax.stop_gradient(frozen) | {"heads": params["heads"]}
        logits, drafted, terms, closes = nn.apply(_said, self.module)(
            {"params": params},
            ids,
            key,
            own_outputs=self.own_outputs,
            blocks=self.blocks,
            max_patches=self.max_patches,
        )
        taught = jax.lax.stop_gradient(jax.nn.log_softmax(logits[..., vocab.OFFSET :]))
        own_loss, metrics = next_byte(logits, ids[:, 1:])
        if closes is not None:
            metrics |= patch_metrics(closes, self.max_patches)
        losses, weights, of_confidence = [], [], []
        for name, place, head_logits, byte, confidence in drafted:
            byte = jnp.broadcast_to(byte, head_logits.shape[:2])
            p = jnp.take_along_axis(taught, byte[..., None] - 1, axis=1)
            q = jax.nn.log_softmax(head_logits[..., vocab.OFFSET :])
            text = jnp.take_along_axis(ids, byte, axis=1)
            known = text >= vocab.OFFSET
            total_of_head, count_of_head = summed(self._apart(p, q, text), known)
            losses.append(total_of_head / jnp.maximum(count_of_head, 1))
            weights.append(1.0 if self.decay is None else jnp.exp(-(place - 1) / self.decay))
            overlap, agreed = _overlap(p, q), p.argmax(-1) == q.argmax(-1)
            metrics[f"overlap_{name}"] = summed(overlap, known)
            metrics[f"agreed_{name}"] = summed(agreed, known)
            if confidence is not None:
                accepted = jax.lax.stop_gradient(jnp.stack([overlap, agreed], axis=-1))
                apart = optax.sigmoid_binary_cross_entropy(confidence, accepted).sum(-1)
                metrics[f"confidence_loss_{name}"] = summed(apart, known)
                of_confidence.append(summed(apart, known)[0] / jnp.maximum(count_of_head, 1))
        loss = sum(w * x for w, x in zip(weights, losses, strict=True)) / sum(weights)
        # Their gradients reach other parameters than those of the heads that they judge.
        loss += sum(of_confidence) / max(len(of_confidence), 1)
        for name, values, present, weight in terms:
            metrics[name] = summed(values, present)
            loss += weight * metrics[name][0] / jnp.maximum(metrics[name][1], 1)
        return self.head_weight * loss + self.joint * own_loss, metrics

    def trainable(self, path: tuple[str, ...]) -> bool:
        """Whether a parameter is trained: those of the heads, and with `joint` all."""
        return self.joint or path[0] == "heads"

    def _apart(self, p, q, text):
        """The loss of a head at each position, [B, N], from log-probabilities of byte values."""
        match self.loss_of:
            case "cross-entropy":
                value = jnp.maximum(text - vocab.OFFSET, 0)[..., None]
                return -jnp.take_along_axis(q, value, axis=-1)[..., 0]
            case "kl":
                return jnp.sum(jnp.exp(p) * (p - q), axis=-1)
            case "lk":
                return -jnp.log(_overlap(p, q) + 1e-9)
        return jnp.abs(jnp.exp(p) - jnp.exp(q)).sum(-1) / 2


def _overlap(p, q):
    return jnp.minimum(jnp.exp(p), jnp.exp(q)).sum(-1)


def _said(
    model: ByteLM | BLT,
    ids: Int[Array, "B L"],
    key: Key[Array, ""],
    *,
    own_outputs: int,
    blocks: int,
    max_patches: int | None,
) -> Said:
    """Computes the model's logits after bytes 0..L-2, and what every head says."""
    config, heads = model.config.heads, model.heads
    assert config is not None
    hidden, closes = model.states(ids[:, :-1], max_patches=max_patches)
    embedded = model.embed(ids[:, 1:])
    logits, final = model.logits(hidden[-1]), model.norm(hidden[-1])
    length = logits.shape[1]
    places = jnp.arange(length)[None]  # of the bytes that are read
    drafted = [Drafted(f"exit_{n}", 1, heads.exit(n, hidden[n]), places + 1) for n in config.exits]
    for index in range(config.bytes_ahead):
        end = length - 1 - index
        before = ids[:, 1 + index : 1 + index + end]
        out = heads.ahead(index, final[:, :end], before)
        drafted.append(Drafted(f"ahead_{index + 2}", index + 1, out, places[:, :end] + index + 2))
    for n in config.two_byte:
        after = heads.two_byte(n, hidden[n][:, :-1], embedded[:, :-1])
        drafted.append(Drafted(f"two_byte_{n}", 1, model.logits(after), places[:, :-1] + 2))
    if config.draft_layer:
        features = heads.draft_layer.fuse(*(hidden[n] for n in config.fused(config.draft_layer)))
        unrolled = heads.draft_layer.unroll(features[:, :-1], embedded[:, :-1], own_outputs)
        for step, said in enumerate(unrolled):
            # The first positions of later steps would read outputs from before the text.
            byte = places[:, step:-1] + 2
            state, before = said.states[:, step:], ids[:, 1 + step : -1]
            sure = heads.draft_layer.accepted(state, before) if config.draft.confidence else None
            name = f"draft_layer_{step + 1}"
            drafted.append(Drafted(name, step + 1, said.logits[:, step:], byte, sure))
    if config.draft_block or config.block_table:
        size = config.draft.block_size
        if length <= size:
            raise ValueError(
                f"a text of {length} bytes has no block of {size}: take longer windows"
            )
        number = min(blocks, length - size)
        pending = 1 + _distinct(key, ids.shape[0], length - size, number)
        if config.draft_block:
            drafted += _blocks(model, ids, hidden, pending)
        if config.block_table:
            drafted += _masked_blocks(model, ids, pending, max_patches)
    terms: list[Term] = []
    if config.latents is not None:
        assert closes is not None  # of a BLT
        of_latents, terms = _latents(model, ids, hidden, closes, max_patches)
        drafted += of_latents
    return Said(logits, drafted, terms, closes)


_UNROLLED = 2  # patches behind the last one that the model has seen
_DISTANCE = 0.3  # weight of a distance of latents, beside the divergences of bytes


def _latents(model, ids, hidden, closes, max_patches) -> tuple[list[Drafted], list[Term]]:
    """Judges the predicted latents of all patches, and the predicted ends of patches."""
    heads, read = model.heads, ids[:, :-1]
    text, looked_up = model.encode(read, max_patches=max_patches), model.looked_up(read)
    state = jnp.pad(hidden[-1][:, :-1], ((0, 0), (1, 0), (0, 0)))  # of the byte before
    end = optax.sigmoid_binary_cross_entropy(heads.closes(state, looked_up), closes)
    terms = [Term("closing_loss", end, read != vocab.BOE)]

    last = nth_true(closes, jnp.arange(text.latents.shape[1]))
    there = last < closes.shape[1]
    last = jnp.where(there, last, 0)
    first = jnp.pad(last[:, :-1] + 1, ((0, 0), (1, 0)))
    recent = last[..., None] + jnp.arange(1 - RECENT, 1)
    inside = there[..., None] & (recent >= first[..., None])
    batch = jnp.arange(ids.shape[0])[:, None]
    bytes_read = looked_up[batch[..., None], jnp.maximum(recent, 0)]
    state = state[batch, last]

    own, drafted, latents = model.decoder.context(text.latents), [], text.latents
    for step in range(1, _UNROLLED + 1):
        before = jnp.pad(latents[:, :-1], ((0, 0), (1, 0), (0, 0)))
        latents = heads.latents(before, state, bytes_read, inside)
        states = model.states_under(read, text, latents)[-1]
        name, byte = f"latents_{step}", jnp.arange(read.shape[1])[None] + 1
        drafted.append(Drafted(name, step, model.logits(states), byte))
        apart = _apart_by_variance(model.decoder.context(latents), own, there)
        terms.append(Term(f"distance_{name}", apart, there, _DISTANCE / _UNROLLED))
    return drafted, terms


def _apart_by_variance(contexts, own, there) -> Float[Array, "B P"]:
    """Squared distances of keys and values from a model's own, each relative to its variance."""
    apart = []
    for left, right in zip(jax.tree.leaves(contexts), jax.tree.leaves(own), strict=True):
        where = there.reshape(*there.shape, *(1,) * (right.ndim - 2))
        variance = jnp.var(right, axis=(0, 1), where=where).mean()
        axes = tuple(range(2, right.ndim))
        apart.append(jnp.square(left - right).mean(axes) / jax.lax.stop_gradient(variance + 1e-9))
    return jnp.stack(apart).mean(0)


def _blocks(model, ids, hidden, pending) -> list[Drafted]:
    """Returns the predictions of a draft block behind the bytes at `pending` i32[B, M]."""
    config, block = model.config.heads, model.heads.draft_block
    features = block.fuse(*(hidden[n] for n in config.fused(config.draft_block)))
    embedded = model.embed(jnp.take_along_axis(ids, pending, axis=1))
    found = block.of_texts(features, embedded, start=pending, size=config.draft.block_size)
    drafted = []
    for index in range(config.draft.block_size):
        before = jnp.take_along_axis(ids, pending + index, axis=1)
        logits = with_specials(found.logits[:, :, index] + block.table_row(before))
        name, byte = f"draft_block_{index + 1}", pending + index + 1
        sure = None
        if config.draft.confidence:
            sure = block.accepted(found.states[:, :, index], before)
        drafted.append(Drafted(name, index + 1, logits, byte, sure))
    return drafted


def _masked_blocks(model, ids, pending, max_patches) -> list[Drafted]:
    """Returns the predictions of masked blocks and their table, behind the bytes at `pending`."""
    size = model.config.heads.draft.block_size
    cells = model.masked_blocks(ids[:, :-1], pending + 1, size=size, max_patches=max_patches)
    drafted = []
    for index in range(size):
        logits = cells[:, :, index]
        if index:  # the decoder has read the byte before the block
            before = jnp.take_along_axis(ids, pending + index, axis=1)
            logits += model.heads.block_table(before, logits)
        name, byte = f"masked_block_{index + 1}", pending + index + 1
        drafted.append(Drafted(name, index + 1, logits, byte))
    return drafted


def _distinct(key, rows, most, number) -> Int[Array, "B N"]:
    """Draws `number` distinct integers below `most` for each row."""
    return jax.lax.top_k(jax.random.uniform(key, (rows, most)), number)[1]
