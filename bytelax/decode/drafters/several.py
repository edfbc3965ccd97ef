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
        def repeated(tree):
            return jax.tree.map(lambda x: jnp.repeat(x, self.many, axis=0), tree)

        keys = jax.vmap(lambda key: jax.random.split(key, self.many))(key)
        drafts, states = self.drafter.propose(
            params | {"law": repeated(params["law"])},
            repeated(draft_state),
            repeated(text),
            repeated(state),
            keys.reshape(-1),
        )
        batch = text.length.shape[0]

        def flat(x):
            return x.reshape(batch, -1, *x.shape[2:])

        one = self.drafter.width
        place = jnp.arange(self.width)
        parents = jnp.where(place % one == 0, 0, place)
        draft = dataclasses.replace(
            drafts,
            ids=flat(drafts.ids),
            length=drafts.length.reshape(batch, -1).sum(1),
            log_probs=flat(drafts.log_probs),
            deterministic=drafts.deterministic[:: self.many],
            step=flat(drafts.step),
            passes=jax.tree.map(lambda made: made.reshape(batch, -1).sum(1), drafts.passes),
            confidence=None if drafts.confidence is None else flat(drafts.confidence),
            parents=jnp.broadcast_to(parents, (batch, self.width)),
        )
        # They differ in what lies beyond the text alone, which nobody reads.
        return draft, jax.tree.map(lambda x: x[:: self.many], states)

    def commit(self, params, draft_state, trial, count):
        return self.drafter.commit(params, draft_state, trial, count)
