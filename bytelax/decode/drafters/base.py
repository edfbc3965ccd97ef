"""The Drafter contract."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bytelax import vocab
from bytelax.decode import sampling
from bytelax.decode.target import State, Text, Trial
from bytelax.pytree import pytree

DraftState = Any


class DraftPasses(NamedTuple):
    """Forward passes made to propose, one number a row."""

    decoder: Int[Array, " B"]  # of the target's local decoder, or of a part of a byte transformer
    encoder: Int[Array, " B"]
    global_: Int[Array, " B"]
    patcher: Int[Array, " B"]
    draft_model: Int[Array, " B"]  # of a network that is not the target's


def no_passes(batch: int) -> DraftPasses:
    return DraftPasses(*(jnp.zeros(batch, jnp.int32) for _ in DraftPasses._fields))


@pytree
class Draft:
    """Proposed bytes.

    Attributes:
      ids: the proposal; what stands at or beyond `length` is never read.
      length: bytes proposed in each row, 0..K. Whether place j is part of it may hang on the text
        and on ids before j, never on id j: a draft cut because of the id it loses is no longer a
        draw from `log_probs`, and the output no longer the target's.
      log_probs: the law each id was really drawn from, after temperature and truncation; the
        one-hot law where the row is deterministic.
      deterministic: whether the row's ids were chosen without chance.
      step: which of the drafter's passes of this round chose the id, from 1; 0 where none did.
      passes: what proposing took.
      confidence: the drafter's own probability of each id, before temperature and truncation; None
        where that is the law's.
      parents: of a tree, the window place of each id's parent, in 0..j for the id at place j; the
        pending byte has place 0. None: each id follows the one before it.
      computed: what the drafter has computed of the window that the target need not compute again;
        it goes to `extend` as it is. None: nothing.
    """

    ids: Int[Array, "B K"]
    length: Int[Array, " B"]
    log_probs: Float[Array, "B K V"]
    deterministic: Bool[Array, " B"]
    step: Int[Array, "B K"]
    passes: DraftPasses
    confidence: Float[Array, "B K"] | None = None
    parents: Int[Array, "B K"] | None = None
    computed: Any = None


def certain(
    ids: Int[Array, "B K"], *, length: Int[Array, " B"] | None = None, vocab_size: int = vocab.SIZE
) -> Draft:
    """A draft that was chosen without chance and without a pass.

    Args:
      ids: what is proposed.
      length: how much of it in each row; None is all.
      vocab_size: ids of the target.
    """
    batch, width = ids.shape
    return Draft(
        ids=ids,
        length=jnp.full(batch, width) if length is None else length,
        log_probs=sampling.one_hot(ids, vocab_size),
        deterministic=jnp.ones(batch, bool),
        step=jnp.zeros((batch, width), jnp.int32),
        passes=no_passes(batch),
    )


def confidence(draft: Draft) -> Float[Array, "B K"]:
    """How probable the drafter thinks each id; 1 where it says nothing and chose without chance."""
    if draft.confidence is not None:
        return draft.confidence
    return jnp.exp(jnp.take_along_axis(draft.log_probs, draft.ids[..., None], axis=-1)[..., 0])


@runtime_checkable
class Drafter(Protocol):
    """Pure functions over explicit state, as an optax transformation.

    Any object with these three callables will do: a NamedTuple of functions, or a frozen dataclass.
    It is a static argument of compiled programs, so equal drafters should compare equal.

    `params` is `{"target": ..., "drafter": ..., "law": Sampling}`; the law, with which a drafter
    calls `process_logits`, is there in `propose` alone. A round may commit without having proposed:
    then another drafter's bytes were judged, or none.

    Two attributes are read where drafters are composed. `width` is K. `text_only`, False where it
    is missing, says that the draft is a function of the text and the key: such a drafter may be
    shown bytes that the target has not seen and may never keep.
    """

    def init(self, params, text: Text, state: State) -> DraftState:
        """The drafter's own state once the target has taken in the prompt."""
        ...

    def propose(
        self, params, draft_state: DraftState, text: Text, state: State, key: Key[Array, " B"]
    ) -> tuple[Draft, DraftState]:
        """Proposes what follows `text`. May read the target's state, never writes it.

        `key` holds one key a row, fresh each round and used for nothing but drafting.
        """
        ...

    def commit(
        self, params, draft_state: DraftState, trial: Trial, count: Int[Array, " B"]
    ) -> DraftState:
        """Keeps what belongs to the first `count` window bytes of each row."""
        ...
