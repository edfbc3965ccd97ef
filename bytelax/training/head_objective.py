"""Training objective of prediction heads: by default the distributions of the frozen model."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bytelax import architectures, vocab
from bytelax.models.byte_model import ByteModel
from bytelax.systems import trained
from bytelax.systems.trained import Drafted, Term, Texts
from bytelax.training.configs import HeadsLoss
from bytelax.training.objectives import Metrics, Objective, next_byte, patch_metrics, summed


@dataclasses.dataclass(frozen=True)
class HeadLoss(HeadsLoss, Objective):
    """Mean loss of all prediction heads of a model; its settings are the fields of `HeadsLoss`.

    The target of a head is the model's distribution of the byte that the head has to draft, which
    the model predicts at a later position of the same text. A drafted byte is accepted with
    probability sum(min(p, q)), which is logged for each head as `overlap_...`. How often the model
    and the head agree on the most likely byte is logged as `agreed_...`. Which bytes a head
    predicts, and further terms of its loss, are in the file of its system.

    Attributes:
      module: a byte transformer or a BLT, whose config has heads.
    """

    module: ByteModel

    def __post_init__(self):
        super().__post_init__()
        if not self.module.config.networks.present:
            raise ValueError("there are no heads to train: say which, such as heads.medusa.count")

    def init(self, key: Key[Array, ""]) -> dict:
        """Initializes all parameters at random."""
        return super().init(key) | {"heads": trained.init(self.module.config, key)}

    def logical_axes(self) -> dict:
        """The logical axes of the parameters; see `pods.sharding`."""
        return architectures.logical_axes(self.module)

    def loss(
        self, params: dict, ids: Int[Array, "B L"], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Metrics]:
        """Computes the loss of a batch of windows of N + 1 ids, and metrics to log."""
        trunk = {name: part for name, part in params.items() if name != "heads"}
        trunk = jax.lax.stop_gradient(trunk)
        texts, logits = self._read(trunk, ids, key)
        found = trained.losses(self.module.config, self.module.execution, params["heads"], texts)
        drafted = [x for x in found if isinstance(x, Drafted)]
        terms = [x for x in found if isinstance(x, Term)]
        taught = jax.lax.stop_gradient(jax.nn.log_softmax(logits[..., vocab.OFFSET :]))
        _, metrics = next_byte(logits, ids[:, 1:])
        if texts.closes is not None:
            metrics |= patch_metrics(texts.closes, self.max_patches)
        losses, weights = [], []
        for name, place, head_logits, byte in drafted:
            byte = jnp.broadcast_to(byte, head_logits.shape[:2])
            p = jnp.take_along_axis(taught, byte[..., None] - 1, axis=1)
            q = jax.nn.log_softmax(head_logits[..., vocab.OFFSET :])
            known = jnp.take_along_axis(ids, byte, axis=1) >= vocab.OFFSET
            overlap = jnp.minimum(jnp.exp(p), jnp.exp(q)).sum(-1)
            agreed = p.argmax(-1) == q.argmax(-1)
            apart = jnp.sum(jnp.exp(p) * (p - q), axis=-1)
            if self.loss_of == "lk":
                apart = -jnp.log(overlap + 1e-9)
            total_of_head, count_of_head = summed(apart, known)
            losses.append(total_of_head / jnp.maximum(count_of_head, 1))
            weights.append(1.0 if self.decay is None else jnp.exp(-(place - 1) / self.decay))
            metrics[f"overlap_{name}"] = summed(overlap, known)
            metrics[f"agreed_{name}"] = summed(agreed, known)

        total: Any = sum(w * x for w, x in zip(weights, losses, strict=True))
        loss = total / sum(weights)
        for name, values, present, weight in terms:
            metrics[name] = summed(values, present)
            loss += weight * metrics[name][0] / jnp.maximum(metrics[name][1], 1)
        return loss, metrics

    def trainable(self, path: tuple[str, ...]) -> bool:
        """Whether a parameter is trained: those of the heads."""
        return path[0] == "heads"

    def _read(self, trunk, ids, key) -> tuple[Texts, Float[Array, "B S V"]]:
        """Runs the model over texts; returns what heads read, and the model's own logits."""
        model = self.module.bind({"params": trunk})
        hidden, closes = model.states(ids[:, :-1], max_patches=self.max_patches)
        texts = Texts(
            model=model,
            ids=ids,
            hidden=hidden,
            embedded=model.embed(ids[:, 1:]),
            closes=closes,
            max_patches=self.max_patches,
            own_outputs=self.own_outputs,
            blocks=self.blocks,
            key=key,
        )
        return texts, model.logits(hidden[-1])
