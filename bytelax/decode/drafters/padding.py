"""Drafts in more places than they fill, so that the verifying window has a given shape."""

import dataclasses

import jax.numpy as jnp

from bytelax.decode.drafters.base import Draft, Drafter, confidence


def padded(drafter: Drafter, width: int) -> Drafter:
    """Proposes what the drafter does, in `width` places.

    Raises:
      ValueError: the drafter's own places are more.
    """
    if drafter.width > width:
        raise ValueError(f"drafts of {drafter.width} places do not fit into {width}")
    return drafter if drafter.width == width else Padded(drafter, width)


@dataclasses.dataclass(frozen=True)
class Padded:
    """See `padded`."""

    drafter: Drafter
    width: int

    def init(self, params, text, state):
        return self.drafter.init(params, text, state)

    def propose(self, params, draft_state, text, state, key):
        draft, draft_state = self.drafter.propose(params, draft_state, text, state, key)
        return widened(draft, self.width), draft_state

    def commit(self, params, draft_state, trial, count):
        return self.drafter.commit(params, draft_state, trial, count)


def widened(draft: Draft, width: int) -> Draft:
    """The draft in `width` places, of which those behind its own are never part of it."""

    def pad(x):
        return jnp.pad(x, ((0, 0), (0, width - x.shape[1]), *((0, 0),) * (x.ndim - 2)))

    return dataclasses.replace(
        draft,
        ids=pad(draft.ids),
        log_probs=pad(draft.log_probs),
        step=pad(draft.step),
        confidence=pad(confidence(draft)),
        parents=None if draft.parents is None else pad(draft.parents),
        computed=draft.computed if width == draft.ids.shape[1] else None,
    )
