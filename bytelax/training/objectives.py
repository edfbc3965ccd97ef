"""Training objectives: next-byte loss, distillation, and the joint loss of Fast BLT."""

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from bytelax import vocab
from bytelax.models.block_attention import Blocks
from bytelax.models.blt import BLT, latents
from bytelax.models.byte_lm import ByteLM
from bytelax.models.byte_model import ByteModel
from bytelax.models.execution import Execution
from bytelax.training.configs import CorruptionConfig, JointLoss, NextByteLoss

# Name -> (sum, count) of a quantity to be averaged. Sums and counts add up over microbatches.
Metrics = dict[str, tuple[Float[Array, ""], Float[Array, ""]]]

_LN2 = 0.6931471805599453
_NOT_ZERO = 2.0**-23  # the step between uniform random numbers; the loss divides by t
_LATE = 1  # folded into the key of a step for the patches that are read late


@dataclasses.dataclass(frozen=True)
class Objective:
    """A loss that the training loop minimizes: a static, hashable dataclass.

    Attributes:
      module: the model that is trained, except for the entropy model inside a BLT.
    """

    module: ByteModel

    @property
    def context(self) -> int:
        """Longest window, in ids, that the models of the loss are for."""
        return self.module.config.max_bytes

    def init(self, key: Key[Array, ""]) -> dict:
        """Initializes all parameters at random."""
        return self.module.init(key, jnp.zeros((1, 8), jnp.int32))["params"]

    def loss(
        self, params: dict, ids: Int[Array, "B L"], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Metrics]:
        """Computes the loss of a batch of windows of L = N + 1 ids, and metrics to log.

        Args:
          params: all parameters.
          ids: inputs are `ids[:, :-1]` and targets are `ids[:, 1:]`.
          key: PRNG key of the step.
        """
        raise NotImplementedError

    def diagnostics(self, params: dict, ids: Int[Array, "B L"]) -> Metrics:
        """Computes further metrics, which are logged in validation only; by default none."""
        return {}

    def logical_axes(self) -> dict:
        """The logical axes of the parameters; see `pods.sharding`."""
        return self.module.logical_axes()

    def trainable(self, path: tuple[str, ...]) -> bool:
        """Whether the parameter at a path is trained: all but those of a BLT's entropy model."""
        return path[0] != "patcher"

    def model_params(self, params: dict) -> dict:
        """Selects the parameters of `module` from all parameters of the loss."""
        return params


@dataclasses.dataclass(frozen=True)
class NextByte(NextByteLoss, Objective):
    """Mean negative log-likelihood of the next byte, in nats; see `NextByteLoss` for its fields.

    Attributes:
      module: a byte transformer (which includes entropy models) or a BLT. The entropy model inside
        a BLT is not trained.
    """

    module: ByteModel

    def loss(
        self, params: dict, ids: Int[Array, "B L"], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Metrics]:
        """Computes the next-byte loss of a batch of windows of N + 1 ids, and metrics to log."""
        logits, metrics = self._forward(params, ids[:, :-1], key)
        loss, clean = next_byte(logits, ids[:, 1:])
        return loss, metrics | clean

    def logits(self, params: dict, ids: Int[Array, "B S"]) -> Float[Array, "B S V"]:
        """Computes next-byte logits after every position of whole texts."""
        return self._forward(params, ids)[0]

    def _forward(self, params, ids, key=None):
        how: dict[str, Any] = {"max_patches": self.max_patches}
        if self.late and key is not None:
            how["read"] = latents.late(self.late, key)
        logits, closes = self.module.apply({"params": params}, ids, **how, method="predict")
        return logits, {} if closes is None else patch_metrics(closes, self.max_patches)

    def diagnostics(self, params: dict, ids: Int[Array, "B L"]) -> Metrics:
        """Computes what the latents of a BLT are worth, in bits; see `models.blt.latents`."""
        return _latent_metrics(self.module, params, ids, self.max_patches)


@dataclasses.dataclass(frozen=True)
class Distillation(Objective):
    """Next-byte loss of a student model, combined with its divergence from a teacher model.

    Knowledge distillation (Hinton et al., arXiv 1503.02531) at temperature 1. It suits a draft
    model, because the overlap of its distributions with those of the large model is the probability
    that a drafted byte is accepted. The teacher's parameters are under "teacher" and stay fixed.

    Attributes:
      module: the student.
      teacher: a byte transformer or a BLT.
      weight: weight of KL(teacher || student); the next-byte loss has weight `1 - weight`.
      max_patches: as in `NextByte`, if the teacher is a BLT.
    """

    module: ByteLM
    teacher: ByteModel
    weight: float = 0.5
    max_patches: int | None = None

    def __post_init__(self):
        if not 0 <= self.weight <= 1:
            raise ValueError(f"the weight of the teacher is a share, 0..1, got {self.weight}")
        if self.module.config.vocab_size != self.teacher.config.vocab_size:
            raise ValueError("student and teacher must be of one vocabulary")

    @property
    def context(self) -> int:
        """As in `Objective`: the shorter one of student and teacher."""
        return min(super().context, self.teacher.config.max_bytes)

    def init(self, key: Key[Array, ""]) -> dict:
        """Initializes the parameters of the student and the teacher at random."""
        return super().init(key) | {"teacher": NextByte(self.teacher).init(key)}

    def loss(
        self, params: dict, ids: Int[Array, "B L"], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Metrics]:
        """Computes the loss of a batch of windows of N + 1 ids, and metrics to log."""
        logits = NextByte(self.module).logits(self.model_params(params), ids[:, :-1])
        taught = NextByte(self.teacher, max_patches=self.max_patches).logits(
            params["teacher"], ids[:, :-1]
        )
        taught = jax.lax.stop_gradient(taught)
        loss, metrics = next_byte(logits, ids[:, 1:])
        apart = optax.losses.kl_divergence_with_log_targets(
            jax.nn.log_softmax(logits), jax.nn.log_softmax(taught)
        )
        apart, count = summed(apart, ids[:, 1:] != vocab.BOE)
        teacher, _ = next_byte(taught, ids[:, 1:])
        metrics |= {"divergence": (apart, count), "teacher_bits": (teacher * count / _LN2, count)}
        return (1 - self.weight) * loss + self.weight * apart / jnp.maximum(count, 1), metrics

    def logical_axes(self) -> dict:
        """The logical axes of the student's and the teacher's parameters; see `pods.sharding`."""
        return self.module.logical_axes() | {"teacher": self.teacher.logical_axes()}

    def trainable(self, path: tuple[str, ...]) -> bool:
        """Whether a parameter is trained: all but the teacher's."""
        return path[0] != "teacher"

    def model_params(self, params: dict) -> dict:
        """Selects the student's parameters."""
        return {name: part for name, part in params.items() if name != "teacher"}


class Corrupted(NamedTuple):
    """The masked blocks of a batch and their targets."""

    blocks: Blocks
    targets: Int[Array, "B M C"]  # ids before masking
    masked: Bool[Array, "B M C"]  # whether a cell is in use and masked
    t: Float[Array, "B M"]  # masking probability
    patches: Int[Array, " B"]  # number of blocks in the paper's objective, without sampling


def corrupt(
    key: Key[Array, ""],
    ids: Int[Array, "B L"],
    closes: Bool[Array, "B S"],
    *,
    config: CorruptionConfig,
    max_patches: int | None = None,
) -> Corrupted:
    """Samples the blocks that BLT-D trains on, and masks bytes in them.

    Source: Fast BLT (arXiv 2605.08044, section 2.1). There is one block at the start of every patch
    except the first, and each of its bytes is masked with probability t, uniform from `smallest_t`
    (0 in the paper) to 1. These extensions of the paper are off by default: several block sizes for
    one model, blocks that start within a patch (as they do during decoding), a separate t for every
    block, and training on a subset of the blocks.

    Args:
      key: PRNG key; it is consumed.
      ids: texts of S = L - 1 bytes and the byte after each of them, which blocks may include.
      closes: whether each byte of the texts is the last of its patch.
      config: how to sample and mask.
      max_patches: the most blocks, since a text closes as many patches; if it closes more, so many
        are drawn. None: one per byte.
    """
    which_key, place_key, size_key, t_key, mask_key = jax.random.split(key, 5)
    batch, length = closes.shape
    number = min(config.most_blocks or length, max_patches or length, length)
    start, there = _starts(which_key, place_key, closes, number, config.mid_patch)

    widest = max(config.block_sizes)
    sizes = jax.random.choice(size_key, jnp.array(config.block_sizes), (batch, 1))
    cells = jnp.where(there, jnp.minimum(sizes, length + 1 - start), 0)
    place = jnp.minimum(start[..., None] + jnp.arange(widest), length)
    targets = jax.vmap(lambda row, at: row[at])(ids, place)

    draws = number if config.t_for_each == "block" else 1
    t = jax.random.uniform(t_key, (batch, draws), minval=config.smallest_t)
    t = jnp.broadcast_to(jnp.maximum(t, _NOT_ZERO), (batch, number))
    hidden = jax.random.uniform(mask_key, targets.shape) < t[..., None]
    inside = jnp.arange(widest) < cells[..., None]
    masked = hidden & inside & (targets != vocab.BOE)  # BOE pads
    return Corrupted(
        Blocks(jnp.where(masked, vocab.MASK, targets), start, cells),
        targets,
        masked,
        t,
        closes.sum(1),
    )


def _starts(which_key, place_key, closes, number, mid_patch):
    """Samples the position of each block, and whether it is in use."""
    length = closes.shape[1]
    # Byte p + 1 starts a patch if byte p closes one. Hence the first patch, at 0, gets no block.
    order = jnp.where(closes, jax.random.uniform(which_key, closes.shape), -1)
    drawn, last = jax.lax.top_k(order, number)
    start, there = last + 1, drawn >= 0
    share_key, anywhere_key = jax.random.split(place_key)
    moved = there & (jax.random.uniform(share_key, start.shape) < mid_patch)
    anywhere = jax.random.randint(anywhere_key, start.shape, 1, length + 1)
    start = jnp.where(there, jnp.where(moved, anywhere, start), 1)
    return start, there


@dataclasses.dataclass(frozen=True)
class BLTD(JointLoss, Objective):
    """The joint loss of BLT-D; its weights and blocks are the fields of `JointLoss`.

    Attributes:
      module: a BLT with decoder_input="embedding".
    """

    module: BLT

    def __post_init__(self):
        super().__post_init__()
        if self.module.config.decoder_input != "embedding":
            raise ValueError("BLT-D needs decoder_input='embedding': a MASK has no encoder state")

    def loss(
        self, params: dict, ids: Int[Array, "B L"], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], Metrics]:
        """Computes the joint loss of a batch of windows of N + 1 ids, and metrics to log."""

        def joint(model: BLT):
            text = model.encode(ids[:, :-1], max_patches=self.max_patches)
            drawn = corrupt(
                key, ids, text.closes, config=self.corruption, max_patches=self.max_patches
            )
            read = text.latents
            if self.late:
                read = latents.late(self.late, jax.random.fold_in(key, _LATE))(
                    read, text.closes.sum(1)
                )
            contexts = model.decoder.context(read)
            logits = model.decoder.joint(
                ids[:, :-1], contexts, drawn.blocks, patch=text.patch, span=text.span
            )
            return *logits, drawn, text.closes

        clean, cells, drawn, closes = nn.apply(joint, self.module)({"params": params})
        loss, metrics = next_byte(clean, ids[:, 1:])
        masked_nats = optax.softmax_cross_entropy_with_integer_labels(cells, drawn.targets)
        loss += self._masked_loss(masked_nats, drawn, ids)
        metrics |= patch_metrics(closes, self.max_patches)
        return loss, metrics | _masked_metrics(masked_nats, cells, drawn)

    def diagnostics(self, params: dict, ids: Int[Array, "B L"]) -> Metrics:
        """Computes what the latents of the BLT are worth, in bits; see `models.blt.latents`."""
        return _latent_metrics(self.module, params, ids, self.max_patches)

    def _masked_loss(self, nats, drawn: Corrupted, ids):
        total = jnp.sum(jnp.where(drawn.masked, nats / drawn.t[..., None], 0), axis=(1, 2))
        if self.mask_loss == "mean":
            return total.sum() / jnp.maximum(drawn.blocks.length.sum(), 1)
        # If blocks were sampled, scale their sum up to estimate that over all blocks.
        share = drawn.patches / jnp.maximum((drawn.blocks.length > 0).sum(1), 1)
        return jnp.sum(total * share) / (ids.shape[0] * (ids.shape[1] - 1))


def executed(objective: Objective, execution: Execution) -> Objective:
    """Returns the objective with `execution` set on all of its networks."""
    networks: dict[str, Any] = {
        name: value.clone(execution=execution)
        for name, value in vars(objective).items()
        if isinstance(value, nn.Module)
    }
    return dataclasses.replace(objective, **networks)


def summed(values: Array, where: Any = True) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The sum of some of the values and their number, to be averaged as `Metrics`."""
    where = jnp.broadcast_to(where, values.shape)
    return jnp.sum(jnp.where(where, values, 0)).astype(jnp.float32), where.sum().astype(jnp.float32)


def next_byte(logits, targets):
    """Mean next-byte loss in nats, and its metrics. BOE targets are padding and do not count."""
    nats = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    total, count = summed(nats, targets != vocab.BOE)
    return total / jnp.maximum(count, 1), {"bits_per_byte": (total / _LN2, count)}


def _latent_metrics(module, params, ids, max_patches) -> Metrics:
    """Increase in bits per byte if a BLT's latents are replaced; see `models.blt.latents`."""
    if module.config.patching is None:
        return {}
    bits = latents.bits_by_latents(module, params, ids, max_patches=max_patches)
    own, count = bits.pop("own")
    return {f"latents_{name}_cost": (total - own, count) for name, (total, _) in bits.items()}


def patch_metrics(closes: Any, max_patches: int | None) -> Metrics:
    """Bytes per patch, and patches beyond `max_patches`, by `closes` bool[B, S]."""
    count = closes.sum(1)
    dropped = jnp.maximum(count - (max_patches or closes.shape[1]), 0)
    return {
        "bytes_per_patch": (jnp.float32(closes.size), count.sum().astype(jnp.float32)),
        "dropped_patches": summed(dropped.astype(jnp.float32)),
    }


def _masked_metrics(nats, cells, drawn: Corrupted) -> Metrics:
    """Bits and accuracy of masked bytes."""
    right = (cells.argmax(-1) == drawn.targets).astype(jnp.float32)
    return {
        "masked_bits": summed(nats / _LN2, drawn.masked),
        "masked_accuracy": summed(right, drawn.masked),
    }
