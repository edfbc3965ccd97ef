"""What the heads of a byte transformer are trained on: the laws of the trunk they sit on."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bytelax import vocab
from bytelax.models.byte_lm import ByteLM
from bytelax.training.objectives import Metrics, NextByte


@dataclasses.dataclass(frozen=True)
class HeadLoss:
    """Mean loss of all heads, each on the law of the byte that it has to draft.

    A head is asked for what the trunk says at a later byte of the same text. A draft is accepted
    with probability sum min(p, q), so that is logged for each head as `overlap_...`; and how often
    both think the same byte likeliest, as `agreed_...`.

    Attributes:
      module: a byte transformer with heads.
      loss_of: "kl", the divergence of the trunk's law from the head's; "total-variation", what
        acceptance itself loses (both arXiv 2310.08461, section 3); or "cross-entropy" with the
        text's own bytes.
      joint: the trunk learns too, from the text's bytes.
      head_weight: multiplies the heads' loss beside the trunk's own, if that learns.
      own_outputs: steps that a draft layer takes in training, all but the first on its own outputs
        (EAGLE-3, arXiv 2503.01840, "training-time test").
    """

    module: ByteLM
    loss_of: Literal["kl", "total-variation", "cross-entropy"] = "kl"
    joint: bool = False
    head_weight: float = 1.0
    own_outputs: int = 4

    def __post_init__(self):
        if self.module.config.heads is None:
            raise ValueError("there are no heads to train: say which")
        if self.own_outputs < 1:
            raise ValueError(f"own_outputs must be at least 1, got {self.own_outputs}")

    def init(self, key: Key[Array, ""]) -> dict:
        return NextByte(self.module).init(key)

    def loss(
        self, params: dict, ids: Int[Array, "B L"], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Metrics]:
        if not self.joint:
            frozen = {name: part for name, part in params.items() if name != "heads"}
            params = jax.lax.stop_gradient(frozen) | {"heads": params["heads"]}
        logits, drafted = self.module.apply(
            {"params": params}, ids, self.own_outputs, method=_drafted
        )
        there = ids[:, 1:] != vocab.BOE
        laws = jax.nn.log_softmax(logits[..., vocab.OFFSET :])
        nats = -jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], axis=-1)[..., 0]
        total, count = _sum(nats, there)
        metrics = {"bits_per_byte": (total / jnp.log(2.0), count)}
        losses = []
        for name, ahead, head_logits in drafted:
            length = head_logits.shape[1]
            p = jax.lax.stop_gradient(laws[:, ahead : ahead + length])
            q = jax.nn.log_softmax(head_logits[..., vocab.OFFSET :])
            text = ids[:, 1 + ahead : 1 + ahead + length]
            known = there[:, ahead : ahead + length] & (text >= vocab.OFFSET)
            total_of_head, count_of_head = _sum(self._apart(p, q, text), known)
            losses.append(total_of_head / jnp.maximum(count_of_head, 1))
            overlap = jnp.minimum(jnp.exp(p), jnp.exp(q)).sum(-1)
            metrics[f"overlap_{name}"] = _sum(overlap, known)
            metrics[f"agreed_{name}"] = _sum(p.argmax(-1) == q.argmax(-1), known)
        loss = self.head_weight * sum(losses) / len(losses)
        return loss + self.joint * total / jnp.maximum(count, 1), metrics

    def diagnostics(self, params: dict, ids: Int[Array, "B L"]) -> Metrics:
        return {}

    def logical_axes(self) -> dict:
        return self.module.logical_axes()

    def trainable(self, path: tuple[str, ...]) -> bool:
        return self.joint or path[0] == "heads"

    def model_params(self, params: dict) -> dict:
        return params

    def _apart(self, p, q, text):
        """[B, S]: how far the head's law is from what it should be."""
        if self.loss_of == "cross-entropy":
            place = jnp.maximum(text - vocab.OFFSET, 0)[..., None]
            return -jnp.take_along_axis(q, place, axis=-1)[..., 0]
        if self.loss_of == "kl":
            return jnp.sum(jnp.exp(p) * (p - q), axis=-1)
        return jnp.abs(jnp.exp(p) - jnp.exp(q)).sum(-1) / 2


def _drafted(model: ByteLM, ids: Int[Array, "B L"], own_outputs: int):
    """The trunk's logits behind bytes 0..L-2, and each head's.

    A head's entry is its name, the byte whose law its first row should be, and its logits.
    """
    config, heads = model.config.heads, model.heads
    read, embedded = ids[:, :-1], model.embed(ids[:, 1:])
    hidden, _ = model.trunk.states(model.embed(read), span=model.span(read))
    logits, final = model.logits(hidden[-1]), model.norm(hidden[-1])
    drafted = [(f"exit_{n}", 0, heads.exit(n, hidden[n])) for n in config.exits]
    for index in range(config.bytes_ahead):
        end = read.shape[1] - 1 - index
        before = ids[:, 1 + index : 1 + index + end]
        drafted.append(
            (f"ahead_{index + 2}", 1 + index, heads.ahead(index, final[:, :end], before))
        )
    for n in config.two_byte:
        after = heads.two_byte(n, hidden[n][:, :-1], embedded[:, :-1])
        drafted.append((f"two_byte_{n}", 1, model.logits(after)))
    if config.draft_layer:
        features = heads.draft_layer.fuse(*(hidden[n] for n in config.draft_layer))
        for step, out in enumerate(
            heads.draft_layer.unroll(features[:, :-1], embedded[:, :-1], own_outputs)
        ):
            # The first rows of later steps would read outputs from before the text.
            drafted.append((f"draft_layer_{step + 1}", 1 + step, out[:, step:]))
    return logits, drafted


def _sum(values, there: Bool[Array, "B S"]):
    total = jnp.sum(jnp.where(there, values, 0)).astype(jnp.float32)
    return total, there.sum().astype(jnp.float32)
