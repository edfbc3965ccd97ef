"""What EAGLE and DFlash have in common: trained layers that draft from states of a frozen model."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode import sampling
from bytelax.decode.drafter import Drafter, DraftInput, expect
from bytelax.decode.sampling import Sampling
from bytelax.decode.target import Target, Text
from bytelax.models import kv_cache, layers
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution, rows_of
from bytelax.models.kv_cache import Caches
from bytelax.models.layers import Dense, RMSNorm, head, parameter, project
from bytelax.options import DraftStackHead
from bytelax.systems.fitting import expect_heads
from bytelax.targets.module_target import ModuleTarget, kept_state

SAMPLED, GREEDY = 0, 1  # the two outputs of `Confidence`


class Confidence(nn.Module):
    """Predicts the acceptance of a byte from the state that predicts it and the byte before it.

    Output 0 is for sampling: the overlap sum(min(p, q)) of the drafter's distribution and the
    model's. Output 1 is for greedy decoding: whether both have the same likeliest byte. The head
    learns from the states without changing them. Source: DSpark (arXiv 2607.05147).

    Attributes:
      values: number of byte values.
      execution: how the head runs.
    """

    values: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, state: Float[Array, "*B D"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B 2"]:
        """Returns both outputs as logits, in float32."""
        zeros = nn.initializers.zeros
        table = parameter(self, "table", zeros, (self.values, 2), ("byte", None))
        out = Dense((2,), ("embed", None), self.execution, zeros, name="out")
        found = out(jax.lax.stop_gradient(state))
        found = found + rows_of(table, jnp.maximum(before - vocab.OFFSET, 0))
        return found.astype(jnp.float32)


class Predicted(NamedTuple):
    """Output of a stack for some bytes."""

    logits: Float[Array, "*B V"]  # -inf for special ids
    states: Float[Array, "*B D"]  # for `accepted`; of EAGLE the next features
    confidence: Float[Array, "*B 2"] | None = None


class DraftStack(nn.Module):
    """Layers that draft; the states of a byte are fused into one feature, which they read.

    Attributes:
      trunk: sizes of the stack.
      values: number of byte values.
      latent: whether the first of the fused states is a latent.
      has_confidence: whether there is a `Confidence` head.
      execution: how the layers run.
    """

    trunk: TransformerConfig
    values: int
    latent: bool = False
    has_confidence: bool = False
    execution: Execution = Execution()

    def make_shared(self) -> None:
        """Creates the layers that both systems have; called in `setup`."""
        t = self.trunk
        self.fusion, self.inward = (project(t.dim, self.execution) for _ in range(2))
        if self.latent:
            self.latent_norm = RMSNorm(t.norm_eps)
        self.embedding_norm, self.norm = RMSNorm(t.norm_eps), RMSNorm(t.norm_eps)
        self.out = head(self.values, self.execution)
        if self.has_confidence:
            self.confidence = Confidence(self.values, self.execution)

    def fuse(self, *states: Float[Array, "*B _"]) -> Float[Array, "*B D"]:
        """Fuses the states of each byte into one feature."""
        if self.latent:
            states = (self.latent_norm(states[0]), *states[1:])
        return self.fusion(jnp.concatenate(states, axis=-1))


class StackDrafter(Drafter):
    """Base of drafters with a stack that reads fused states of the target.

    Attributes:
      system: name of the system, under which its parameters lie.
      min_survival: end a draft before the first byte that is kept with less than this probability,
        as predicted before the byte is drawn; see `goes_on`. None drafts K bytes.
    """

    system: str
    min_survival: float | None

    def __post_init__(self):
        if self.min_survival is not None and not 0 <= self.min_survival <= 1:
            raise ValueError(f"min_survival is a probability, 0..1, got {self.min_survival}")

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


def goes_on(
    logits: Float[Array, "B V"],
    how: Sampling,
    before: Float[Array, " B"],
    *,
    confidence: Float[Array, "B 2"] | None,
    least: float | None,
) -> tuple[Float[Array, " B"], Bool[Array, " B"]]:
    """Predicts the probability that a byte will be kept, and whether it should be drafted.

    This is before the byte is drawn, which makes it lossless to end a draft there: whether position
    j is drafted depends on the text and on the ids drawn before j, and never on id j. Then id j,
    where it is shown, is a sample from the distribution that acceptance divides by. To drop a byte
    for its own probability, which is known only after the draw, would show one at j only when a
    likely one was drawn.

    Args:
      logits: the drafter's logits of the byte.
      how: how the byte is sampled.
      before: probability that all bytes of the draft before it are kept.
      confidence: output of a trained `Confidence` head; its prediction for sampling is of
        temperature 1. None takes the drafter's largest probability at temperature 1, which is the
        probability of agreement under greedy sampling if the drafter is calibrated, and too low
        otherwise.
      least: smallest probability of being kept with which a byte is drafted; None drafts all.
    """
    if confidence is None:
        accepted = jnp.exp(sampling.byte_log_probs(logits[:, None], how)[:, 0].max(-1))
    else:
        of_kind = jnp.where(how.cold, confidence[:, GREEDY], confidence[:, SAMPLED])
        accepted = jax.nn.sigmoid(of_kind)
    kept = before * accepted
    return kept, jnp.ones_like(kept, bool) if least is None else kept >= least


def no_keys(trunk: TransformerConfig, text: Text, *, ahead: int, dtype: Any) -> Caches:
    """Returns empty caches for a text and `ahead` bytes after it."""
    batch, length = text.ids.shape
    slots = kv_cache.ring_slots(window=trunk.window, width=ahead, capacity=length + ahead)
    return kv_cache.zeros(trunk, batch=batch, slots=slots, dtype=dtype)
