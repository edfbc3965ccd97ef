"""Several drafts a row, side by side in one window: a tree of chains."""

import dataclasses

import jax
import jax.numpy as jnp

from bytelax.decode.drafters.base import Drafter


@dataclasses.dataclass(frozen=True)
class Several:
    """`many` independent drafts of one drafter, for `acceptance.SpecTr` to choose among.

    SpecTr (Sun et al., arXiv 2310.15141). Greedy drafts would all be alike.

    Attributes:
      drafter: proposes each of them; all as long as it is wide, or none.
      many: drafts a row.
    """

    drafter: Drafter
    many: int

    def __post_init__(self):
        if self.many < 1:
            raise ValueError(f"there must be at least 1 draft, got {self.many}")

    @property
    def width(self) -> int:
        return self.many * self.drafter.width

    def init(self, params, text, state):
        return self.drafter.init(params, text, state)

    def propose(self, params, draft_state, text, state, key):
        keys = jax.vmap(lambda key: jax.random.split(key, self.many), out_axes=1)(key)
        drafts, states = jax.vmap(
            lambda keys: self.drafter.propose(params, draft_state, text, state, keys)
        )(keys)

        def flat(x):
            x = jnp.moveaxis(x, 0, 1)
            return x.reshape(x.shape[0], -1, *x.shape[3:])

        one = self.drafter.width
        place = jnp.arange(self.width)
        parents = jnp.where(place % one == 0, 0, place)
        draft = dataclasses.replace(
            drafts,
            ids=flat(drafts.ids),
            length=drafts.length.sum(0),
            log_probs=flat(drafts.log_probs),
            deterministic=drafts.deterministic[0],
            step=flat(drafts.step),
            passes=jax.tree.map(lambda made: made.sum(0), drafts.passes),
            confidence=None if drafts.confidence is None else flat(drafts.confidence),
            parents=jnp.broadcast_to(parents, (text.ids.shape[0], self.width)),
        )
        # They differ in what lies beyond the text alone, which nobody reads.
        return draft, jax.tree.map(lambda x: x[0], states)

    def commit(self, params, draft_state, trial, count):
        return self.drafter.commit(params, draft_state, trial, count)
