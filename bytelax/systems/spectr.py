"""SpecTr: several drafts of a smaller model, among which optimal transport selects.

Source: Sun et al., arXiv 2310.15141. The rule is in `decode.trees`.
"""

import dataclasses

import jax
import jax.numpy as jnp

from bytelax.decode.drafter import Drafter, expect
from bytelax.decode.method import Method
from bytelax.decode.target import Branching
from bytelax.decode.trees import KSeq
from bytelax.options import SpecTr
from bytelax.systems import draft_model
from bytelax.systems.fitting import Model


@dataclasses.dataclass(frozen=True)
class ParallelDrafter(Drafter):
    """Proposes `many` independent drafts of one drafter, among which `trees.KSeq` selects.

    Under greedy sampling the drafts would all be equal. The drafts of a row are cut to the length
    of the shortest. They lie in the window position by position, so that the padding comes last.

    Attributes:
      drafter: proposes each draft.
      many: number of drafts per row.
    """

    drafter: Drafter
    many: int

    def __post_init__(self):
        if self.many < 1:
            raise ValueError(f"there must be at least 1 draft, got {self.many}")

    @property
    def draft_length(self) -> int:  # type: ignore[override]  # follows from the fields
        return self.many * self.drafter.draft_length

    @property
    def judged_by(self) -> KSeq:
        return KSeq(self.many)

    def fit(self, target):
        expect(target, Branching, self)
        return self.drafter.fit(target)

    def weights_read(self, params, target_params):
        return self.drafter.weights_read(params, target_params)

    def init(self, inputs):
        return self.drafter.init(inputs)

    def resume(self, inputs, draft_state):
        return self.drafter.resume(inputs, draft_state)

    def propose(self, inputs, draft_state):
        def repeated(tree):
            return jax.tree.map(lambda x: jnp.repeat(x, self.many, axis=0), tree)

        keys = jax.vmap(lambda key: jax.random.split(key, self.many))(inputs.key)
        each = dataclasses.replace(
            inputs,
            state=repeated(inputs.state),
            text=repeated(inputs.text),
            sampling=repeated(inputs.sampling),
            key=keys.reshape(-1),
        )
        drafts, states = self.drafter.propose(each, repeated(draft_state))
        drafts = drafts.written_out()
        batch = inputs.text.length.shape[0]

        def flat(x):
            each = x.reshape(batch, self.many, *x.shape[1:])
            return each.swapaxes(1, 2).reshape(batch, self.draft_length, *x.shape[2:])

        parents = jnp.maximum(jnp.arange(self.draft_length) - self.many + 1, 0)
        draft = dataclasses.replace(
            drafts,
            ids=flat(drafts.ids),
            length=self.many * drafts.length.reshape(batch, -1).min(1),
            log_probs=None if drafts.log_probs is None else flat(drafts.log_probs),
            passes=jax.tree.map(lambda made: made.reshape(batch, -1).sum(1), drafts.passes),
            parents=jnp.broadcast_to(parents, (batch, self.draft_length)),
        )
        # The copies of a row differ only in what they drafted: keep the first.
        return draft, jax.tree.map(lambda x: x[:: self.many], states)

    def commit(self, inputs, draft_state, trial, count):
        return self.drafter.commit(inputs, draft_state, trial, count)


def build(options: SpecTr, model: Model) -> Method:
    """Returns the method that its options describe, whose draft model is loaded."""
    one = draft_model.drafter_of(options, model)
    return Method(model.target(), ParallelDrafter(one, options.drafts))
