"""Drafters composed of other drafters.

Parameters and draft states are tuples with one entry per part. The keys of each part are folded
with its index, so that no two parts share random numbers.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from bytelax.decode.draft import Draft
from bytelax.decode.drafters.base import Drafter, DraftInput, fitted
from bytelax.decode.drafters.skipping import propose_if
from bytelax.decode.target import Text


def chain(*parts: Drafter) -> "Chain":
    """Returns a drafter that proposes, in each row, the draft of the first part that has one."""
    return Chain(parts)


def extend_with(first: Drafter, second: Drafter) -> "ExtendWith":
    """Returns a drafter that continues the draft of `first` with one of `second`.

    `second` sees the draft of `first` as part of the text.

    Raises:
      ValueError: `second` is not `text_only`: it would draft from a state that has not seen the
        bytes of `first`.
    """
    return ExtendWith(first, second)


@dataclasses.dataclass(frozen=True)
class Chain:
    """See `chain`. A part is only called if some row has no draft from the parts before it.

    Lossless if its parts are: whether a part is used depends on whether earlier drafts are empty,
    never on an id that any part has drawn.
    """

    parts: tuple[Drafter, ...]

    def __post_init__(self):
        if not self.parts:
            raise ValueError("a chain needs at least one drafter")

    @property
    def draft_length(self) -> int:
        return max(part.draft_length for part in self.parts)

    @property
    def text_only(self) -> bool:
        return all(is_text_only(part) for part in self.parts)

    def fit(self, target):
        return _fit(self.parts, target)

    def init(self, inputs):
        return _init(self.parts, inputs)

    def propose(self, inputs, draft_state):
        draft, states = None, []
        for index, (part, own) in enumerate(zip(self.parts, draft_state, strict=True)):
            if draft is None:
                draft, own = part.propose(of_part(inputs, index), own)
                draft = _chain_of(draft).widened(self.draft_length)
            else:
                nobody = (draft.length == 0).any()
                following, own = propose_if(nobody, part, of_part(inputs, index), own)
                following = _chain_of(following).widened(self.draft_length)
                draft = _first_with_a_draft(*_alike(draft, following))
            states.append(own)
        return draft, tuple(states)

    def commit(self, inputs, draft_state, trial, count):
        return _commit(self.parts, inputs, draft_state, trial, count)


@dataclasses.dataclass(frozen=True)
class ExtendWith:
    """See `extend_with`.

    At each position the distribution is that of the part that drafted it, one-hot where the part is
    deterministic. The draft of a row may therefore begin deterministically and continue with
    samples.
    """

    first: Drafter
    second: Drafter

    def __post_init__(self):
        if not is_text_only(self.second):
            raise ValueError(
                f"{type(self.second).__name__} cannot continue another's draft: it drafts from a "
                "state that has not seen it, and only drafters that need the text alone can"
            )

    @property
    def draft_length(self) -> int:
        return self.first.draft_length + self.second.draft_length

    @property
    def text_only(self) -> bool:
        return is_text_only(self.first)

    def fit(self, target):
        return _fit((self.first, self.second), target)

    def init(self, inputs):
        return _init((self.first, self.second), inputs)

    def propose(self, inputs, draft_state):
        head, first = self.first.propose(of_part(inputs, 0), draft_state[0])
        behind = dataclasses.replace(of_part(inputs, 1), text=_appended(inputs.text, head))
        tail, second = self.second.propose(behind, draft_state[1])
        return _joined(*_alike(_chain_of(head), _chain_of(tail))), (first, second)

    def commit(self, inputs, draft_state, trial, count):
        return _commit((self.first, self.second), inputs, draft_state, trial, count)


def is_text_only(drafter: Drafter) -> bool:
    """Whether the drafter declares that it depends on the text and the key only."""
    return getattr(drafter, "text_only", False)


def of_part(inputs: DraftInput, index: int) -> DraftInput:
    """Returns `inputs` as the part with this index sees them: its own parameters and keys."""
    key = inputs.key
    if key is not None:
        key = jax.vmap(lambda key: jax.random.fold_in(key, index))(key)
    return dataclasses.replace(inputs, params=inputs.params[index], key=key)


def _fit(parts, target):
    return functools.reduce(lambda target, part: fitted(part, target), parts, target)


def _init(parts, inputs):
    return tuple(part.init(of_part(inputs, i)) for i, part in enumerate(parts))


def _commit(parts, inputs, draft_state, trial, count):
    return tuple(
        part.commit(of_part(inputs, i), own, trial, count)
        for i, (part, own) in enumerate(zip(parts, draft_state, strict=True))
    )


def _alike(*drafts: Draft) -> list[Draft]:
    """Returns the drafts with the same optional fields written out."""
    sizes = [draft.log_probs.shape[-1] for draft in drafts if draft.log_probs is not None]
    return [draft.written_out(sizes[0] if sizes else None) for draft in drafts]


def _first_with_a_draft(first: Draft, second: Draft) -> Draft:
    has_one = first.length > 0

    def choose(a, b):
        return jnp.where(has_one.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    passes = jax.tree.map(jnp.add, first.passes, second.passes)
    return dataclasses.replace(jax.tree.map(choose, first, second), passes=passes)


def _chain_of(draft: Draft) -> Draft:
    """Returns the draft without what is only valid for its own window.

    Raises:
      ValueError: the draft is a tree.
    """
    if draft.parents is not None:
        raise ValueError("drafters of trees cannot be composed; draft a chain")
    return draft.alone()


def _appended(text: Text, draft: Draft) -> Text:
    """Appends the draft to the text, in a longer buffer."""
    width = draft.ids.shape[1]
    ids = jnp.pad(text.ids, ((0, 0), (0, width)))
    place = text.length[:, None] + jnp.arange(width)
    row = jnp.arange(ids.shape[0])[:, None]
    return Text(ids.at[row, place].set(draft.ids), text.length + draft.length)


def _joined(head: Draft, tail: Draft) -> Draft:
    """Concatenates two drafts per row: the second begins where the first ends in that row."""
    width = head.ids.shape[1]
    place = jnp.arange(width + tail.ids.shape[1])
    length = head.length[:, None]
    index = jnp.where(place < length, place, width + place - length)
    index = jnp.minimum(index, len(place) - 1)

    def join(a, b):
        both = jnp.concatenate([a, b], axis=1)
        return jnp.take_along_axis(both, index.reshape(*index.shape, *(1,) * (a.ndim - 2)), axis=1)

    return Draft(
        ids=join(head.ids, tail.ids),
        length=head.length + tail.length,
        log_probs=None if head.log_probs is None else join(head.log_probs, tail.log_probs),
        step=join(head.step, tail.step),
        passes=jax.tree.map(jnp.add, head.passes, tail.passes),
        confidence=join(head.confidence, tail.confidence),
    )
