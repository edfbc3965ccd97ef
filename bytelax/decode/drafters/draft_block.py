"""DFlash: a trained draft block predicts several bytes in one pass from the target's states."""

import dataclasses

import jax
import jax.numpy as jnp

from bytelax.decode.draft import no_passes
from bytelax.decode.drafters import draft_sampling, expect, kept_state
from bytelax.decode.drafters.draft_layer import latest
from bytelax.decode.drafters.draft_sampling import draft_of, draw, scanned
from bytelax.decode.targets import ModuleTarget
from bytelax.models import kv_cache
from bytelax.models.layers import with_specials


@dataclasses.dataclass(frozen=True)
class DraftBlock:
    """Predicts K bytes in one pass, then samples them from left to right.

    DFlash (arXiv 2602.06036) and, with the table of the byte before, DSpark (arXiv 2607.05147). The
    pass predicts the bytes independently. The table then adds to the logits of each byte a row that
    depends on the byte sampled before it. The reported distribution is the one sampled from. The
    state is the keys and values of the bytes that the target has taken in, for each layer.

    Attributes:
      draft_length: K, the number of bytes drafted.
      min_survival: end a draft before the first byte that is kept with less than this probability,
        as predicted before the byte is drawn; see `survival`. None drafts K bytes.
    """

    draft_length: int
    min_survival: float | None = None

    head_of_target = "draft_block"  # whose weights a pass reads

    def __post_init__(self):
        draft_sampling.check_survival(self.min_survival)

    def fit(self, target):
        expect(target, ModuleTarget, self)
        config = target.module.config
        if not (config.heads and config.heads.draft_block):
            raise ValueError("the model has no draft block; `bytelax train heads` trains one")
        trained = config.heads.draft.block_size
        if self.draft_length > trained:
            raise ValueError(
                f"the draft block was trained on blocks of up to {trained} bytes, got "
                f"{self.draft_length}"
            )
        reach = config.heads.draft.stack(config.trunk, layers=1).window
        return target.keeping(*_fused(config), reach=reach)

    def init(self, inputs):
        text, config = inputs.text, inputs.model.config
        block = inputs.model.heads.draft_block
        # Windows and blocks are written after the text, also in rows that are done.
        ahead = max(inputs.target.window, config.heads.draft.block_size + 1)
        batch, length = text.ids.shape
        places = latest(text.length - 2, reach=block.trunk.window, length=length)
        states = [kept_state(inputs, depth, places) for depth in _fused(config)]
        slots = kv_cache.ring_slots(window=block.trunk.window, width=ahead, capacity=length + ahead)
        empty = kv_cache.zeros(block.trunk, batch=batch, slots=slots, dtype=states[0].dtype)
        return block.remember(block.fuse(*states), empty, positions=places)

    def propose(self, inputs, draft_state):
        model, text = inputs.model, inputs.text
        block = model.heads.draft_block
        found, caches = block(
            model.embed(text.pending[:, 0]),
            draft_state,
            position=text.length - 1,
            size=model.config.heads.draft.block_size,  # as trained: a query sees all others
        )

        def step(carry, place):
            before, kept, alive = carry
            logits, state, uniform = place
            logits = with_specials(logits + block.table_row(before))
            sure = block.accepted(state, before) if block.has_confidence else None
            accepted = draft_sampling.expected_acceptance(logits, inputs.sampling, confidence=sure)
            kept, likely = draft_sampling.survives(kept, accepted, self.min_survival)
            alive &= likely
            drawn = draw(logits[:, None], inputs.sampling, uniform[:, None])
            return (drawn.ids[:, 0], kept, alive), (drawn, alive)

        batch, uniforms = len(text.length), inputs.uniforms(self.draft_length)
        of_bytes = [x[:, : self.draft_length].swapaxes(0, 1) for x in found]
        first = text.pending[:, 0], jnp.ones(batch), jnp.ones(batch, bool)
        _, (drawn, alive) = jax.lax.scan(step, first, (*of_bytes, uniforms.T))
        none = no_passes(batch)
        draft = draft_of(
            scanned(drawn),
            length=alive.sum(0),
            step=jnp.ones(self.draft_length, jnp.int32),
            passes=none._replace(draft_model=none.draft_model + 1),
        )
        return draft, caches

    def commit(self, inputs, draft_state, trial, count):
        # Rejected bytes lie after the text, where the next block and window overwrite them.
        model, target = inputs.model, inputs.target
        block = model.heads.draft_block
        hidden = [trial.hidden[target.keep.index(depth)] for depth in _fused(model.config)]
        places = trial.state.length[:, None] + jnp.arange(hidden[0].shape[1])
        return block.remember(block.fuse(*hidden), draft_state, positions=places)


def _fused(config):
    return config.heads.fused(config.heads.draft_block)
