"""The base class of drafters and their input; the empty draft."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bytelax.decode import sampling
from bytelax.decode.draft import Draft, certain
from bytelax.decode.sampling import Sampling
from bytelax.decode.target import State, Target, Text, Trial
from bytelax.models import layers
from bytelax.models.pytree import pytree, static
from bytelax.options import TargetError

DraftState = Any


@pytree
class DraftInput:
    """Everything that a drafter may read.

    Attributes:
      params: the drafter's own parameters.
      target: the target that verifies, as returned by `Drafter.fit`.
      target_params: the target's parameters.
      state: the target's state, after all of the text except the pending byte.
      text: prompts and outputs so far.
      sampling: how each row samples; sampled drafts use its `process_logits`.
      key: one random key per row, new in each round and used for drafting only; None in `init`.
    """

    params: Any
    target: Target = static()
    target_params: Any
    state: State
    text: Text
    sampling: Sampling
    key: Key[Array, " B"] | None

    @property
    def model(self) -> Any:
        """The target's Flax module, bound to its parameters."""
        return self.target.bound(self.target_params)

    def uniforms(self, count: int) -> Float[Array, "B {count}"]:
        """Returns `count` uniform random numbers in [0, 1) per row, the same ones at every call."""
        assert self.key is not None  # `init` draws nothing
        return sampling.row_uniforms(self.key, count)


class Drafter:
    """Base of drafters: pure functions over explicit state, like an optax transformation.

    A drafter is hashable, for example a frozen dataclass, because it is part of a `Method`, which
    is a static argument of compiled programs. Equal drafters should compare equal. A subclass has a
    `draft_length` and `propose`; the rest has a default.

    Attributes:
      draft_length: K, the maximum number of bytes proposed per round; the length of `Draft.ids`.
    """

    draft_length: int

    @property
    def judged_by(self) -> Any:
        """The lossless acceptance rule for a drafter of trees; None for `Lossless` of chains."""
        return None

    def fit(self, target: Target) -> Target:
        """Returns the target with what this drafter needs, such as hidden states to keep.

        Raises:
          ValueError: the model lacks what the drafter needs.
        """
        return target

    def init(self, inputs: DraftInput) -> DraftState:
        """Returns the drafter's own state, after the target has processed the prompt."""
        return ()

    def resume(self, inputs: DraftInput, draft_state: DraftState) -> DraftState:
        """Brings the state up to date once bytes were appended to the texts, as `init` would."""
        return self.init(inputs)

    def propose(self, inputs: DraftInput, draft_state: DraftState) -> tuple[Draft, DraftState]:
        """Proposes bytes that continue the text.

        The target's state must keep its meaning; see `Draft.state`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method propose")

    def commit(
        self, inputs: DraftInput, draft_state: DraftState, trial: Trial, count: Int[Array, " B"]
    ) -> DraftState:
        """Updates the drafter's state once the first `count` window bytes of a row are kept.

        This may follow a round in which `propose` was not called: the bytes of another drafter were
        verified, or none.
        """
        return draft_state

    def weights_read(self, params: Any, target_params: Any) -> int:
        """Returns the number of weights that a pass of `DraftPasses.draft_model` reads.

        Args:
          params: parameters of the drafter.
          target_params: parameters of the target, with those of its heads.
        """
        return layers.weights(params)


def expect(target: Target, kind: type[Target], drafter: Drafter) -> None:
    """Raises TargetError if a drafter cannot work with this kind of target."""
    if not isinstance(target, kind):
        needed, given = (x.model_kind or x.__name__ for x in (kind, type(target)))
        raise TargetError(type(drafter).__name__, f"{needed}, not {given}")


@dataclasses.dataclass(frozen=True)
class Empty(Drafter):
    """Proposes nothing, in a draft of `draft_length` padded positions.

    With 0 positions this is plain decoding. With K positions it is plain decoding in windows of K +
    1 bytes: the bitwise reference for a lossless drafter of K bytes.
    """

    draft_length: int = 0

    def propose(self, inputs, draft_state):
        nothing = jnp.zeros_like(inputs.text.length)
        ids = jnp.zeros((len(nothing), self.draft_length), jnp.int32)
        return certain(ids, length=nothing), draft_state
