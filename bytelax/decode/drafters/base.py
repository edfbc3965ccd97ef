"""The Drafter contract."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int, Key

from bytelax.decode import sampling
from bytelax.decode.draft import Draft
from bytelax.decode.sampling import Sampling
from bytelax.decode.target import State, Target, Text, Trial
from bytelax.pytree import pytree, static

DraftState = Any


@pytree
class DraftInput:
    """What a drafter may read.

    Attributes:
      params: the drafter's own parameters.
      target: the target that verifies, as `Drafter.fit` has returned it.
      target_params: its parameters.
      state: its state; all of the text but the pending byte is taken in.
      text: what has been written so far.
      sampling: how the request samples; drafts are drawn with its `process_logits`.
      key: one key a row, fresh each round and used for nothing but drafting; None in `init`.
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
        return self.target.module.bind({"params": self.target_params})

    def uniforms(self, count: int) -> Float[Array, "B {count}"]:
        """`count` random numbers in [0, 1) for each row: the same ones at every call."""
        return sampling.row_uniforms(self.key, count)


@runtime_checkable
class Drafter(Protocol):
    """Pure functions over explicit state, as an optax transformation.

    Any hashable object with these members will do, as a frozen dataclass. It is part of a `Method`,
    which is a static argument of compiled programs: equal drafters should compare equal.

    A round may commit without having proposed: then another drafter's bytes were judged, or none.

    Three more members are optional. `text_only = True` says that the draft depends on the text and
    the key alone: such a drafter may be shown bytes that the target has not seen and may never
    keep. `judged_by` is the lossless rule for a drafter of trees, where chains are judged by
    `Lossless`; None for chains. `fit(target) -> Target` returns the target with what this drafter
    needs of it (hidden states to keep, cells to run ahead), and raises ValueError where the model
    has not what it takes.
    """

    @property
    def draft_length(self) -> int:
        """K, the most bytes that are proposed: places of the draft."""
        ...

    def init(self, inputs: DraftInput) -> DraftState:
        """The drafter's own state once the target has taken in the prompt."""
        ...

    def propose(self, inputs: DraftInput, draft_state: DraftState) -> tuple[Draft, DraftState]:
        """Proposes what follows the text, and leaves what the target's state means as it is."""
        ...

    def commit(
        self, inputs: DraftInput, draft_state: DraftState, trial: Trial, count: Int[Array, " B"]
    ) -> DraftState:
        """Keeps what belongs to the first `count` window bytes of each row."""
        ...


def fitted(drafter: Drafter, target: Target) -> Target:
    """The target with what the drafter needs of it."""
    fit = getattr(drafter, "fit", None)
    return target if fit is None else fit(target)


def expect(target: Target, kind: type, drafter: Drafter) -> None:
    """Raises ValueError where a drafter cannot work with this kind of target."""
    if not isinstance(target, kind):
        other = getattr(target, "model_kind", type(target).__name__)
        raise ValueError(f"{type(drafter).__name__} needs {kind.model_kind}, not {other}")
