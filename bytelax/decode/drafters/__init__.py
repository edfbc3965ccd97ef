"""The `Drafter` protocol and its input; the empty draft."""

import dataclasses
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from bytelax.decode import sampling
from bytelax.decode.draft import Draft, certain
from bytelax.decode.sampling import Sampling
from bytelax.decode.target import State, Target, Text, Trial
from bytelax.decode.targets import ModuleTarget
from bytelax.models import layers, ring
from bytelax.models.pytree import pytree, static
from bytelax.options import TargetError

DraftState = Any
Network = TypeVar("Network", bound=nn.Module)


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
        return cast(Any, self.target).bound(self.target_params)

    def trained(self, network: Network, system: str) -> Network:
        """Returns a system's network, bound to the parameters that were trained for the target."""
        return network.bind({"params": self.target_params["heads"][system]})

    def uniforms(self, count: int) -> Float[Array, "B {count}"]:
        """Returns `count` uniform random numbers in [0, 1) per row, the same ones at every call."""
        assert self.key is not None  # `init` draws nothing
        return sampling.row_uniforms(self.key, count)


@runtime_checkable
class Drafter(Protocol):
    """Protocol of a drafter: pure functions over explicit state, like an optax transformation.

    Any hashable object with these members will do, for example a frozen dataclass. A drafter is
    part of a `Method`, which is a static argument of compiled programs, so equal drafters should
    compare equal.

    `commit` may follow a round in which `propose` was not called: the bytes of another drafter were
    verified, or none.

    Three more members are optional. `judged_by` is the lossless acceptance rule for a drafter of
    trees; None for drafters of chains, which `Lossless` handles. `fit(target) -> Target` returns
    the target with what this drafter needs of it (hidden states to keep, cells to run ahead), and
    raises ValueError if the model lacks it. `resume(inputs, draft_state) -> DraftState` brings the
    state up to date once bytes were appended to the texts, as `init` would make it; without it,
    `init` does.
    """

    @property
    def draft_length(self) -> int:
        """K, the maximum number of bytes proposed per round; the length of `Draft.ids`."""
        ...

    def init(self, inputs: DraftInput) -> DraftState:
        """Returns the drafter's own state, after the target has processed the prompt."""
        ...

    def propose(self, inputs: DraftInput, draft_state: DraftState) -> tuple[Draft, DraftState]:
        """Proposes bytes that continue the text.

        The target's state must keep its meaning; see `Draft.state`.
        """
        ...

    def commit(
        self, inputs: DraftInput, draft_state: DraftState, trial: Trial, count: Int[Array, " B"]
    ) -> DraftState:
        """Updates the drafter's state once the first `count` window bytes of a row are kept."""
        ...


def fitted(drafter: Drafter, target: Target) -> Target:
    """Returns the target with what the drafter needs of it."""
    fit = getattr(drafter, "fit", None)
    return target if fit is None else fit(target)


def resumed(drafter: Drafter, inputs: DraftInput, draft_state: DraftState) -> DraftState:
    """Returns the drafter's state after a text that goes on from the one it knows."""
    resume = getattr(drafter, "resume", None)
    return drafter.init(inputs) if resume is None else resume(inputs, draft_state)


def kept_state(
    inputs: DraftInput, depth: int, positions: Int[Array, "B N"]
) -> Float[Array, "B N D"]:
    """Returns the target's hidden states at a depth that `fit` asked it to keep.

    Args:
      inputs: input of a drafter, with a `ModuleTarget`.
      depth: depth of the states.
      positions: positions of bytes that the target has processed, within its reach.
    """
    target = inputs.target
    assert isinstance(target, ModuleTarget)
    return ring.at(inputs.state.hidden[target.keep.index(depth)], positions)


def weights_read(drafter: Drafter, params: Any, target_params: Any) -> int:
    """Returns the number of weights that a pass of `DraftPasses.draft_model` reads.

    Args:
      drafter: the drafter, or one that holds it as `drafter`.
      params: parameters of the drafter.
      target_params: parameters of the target; those of its heads count if the drafter runs them.
    """
    own = getattr(drafter, "weights_read", None)
    if own is not None:
        return own(params, target_params)
    head = getattr(drafter, "head_of_target", None)
    if head is not None:
        return layers.weights(target_params["heads"][head])
    inner = getattr(drafter, "drafter", None)
    if inner is not None:
        return weights_read(inner, params, target_params)
    return layers.weights(params)


def expect(target: Target, kind: type, drafter: Any) -> None:
    """Raises TargetError if a drafter cannot work with this kind of target."""
    if not isinstance(target, kind):
        needed, given = (getattr(x, "model_kind", x.__name__) for x in (kind, type(target)))
        raise TargetError(type(drafter).__name__, f"{needed}, not {given}")


def expect_heads(found: Any, what: str) -> None:
    """Raises ValueError if a model lacks trained heads; `what` names them."""
    if not found:
        raise ValueError(f"the model has no {what}: see `bytelax train heads`")


def check_latent(drafter: Any, *known: str) -> None:
    """Raises ValueError if the field `latent` of a drafter is none of these words."""
    if drafter.latent not in known:
        raise ValueError(f"latent {drafter.latent!r} is not {' or '.join(known)}")


class Stateless:
    """Base of drafters that keep no state of their own."""

    def init(self, inputs: DraftInput) -> DraftState:
        """Returns an empty state."""
        return ()

    def commit(self, inputs, draft_state: DraftState, trial: Trial, count) -> DraftState:
        """Returns the state as it is."""
        return draft_state


@dataclasses.dataclass(frozen=True)
class Empty(Stateless):
    """Proposes nothing, in a draft of `draft_length` padded positions.

    With 0 positions this is plain decoding. With K positions it is plain decoding in windows of K +
    1 bytes: the bitwise reference for a lossless drafter of K bytes.
    """

    draft_length: int = 0

    def propose(self, inputs, draft_state):
        nothing = jnp.zeros_like(inputs.text.length)
        ids = jnp.zeros((len(nothing), self.draft_length), jnp.int32)
        return certain(ids, length=nothing), draft_state
