"""Drafters that no system can have: those that know latents before the global transformer has run.

They bound what a drafter of latents can reach, and run the whole model for every byte.
"""

import dataclasses

import jax.numpy as jnp

from bytelax.decode.draft import draft_of, draw, no_passes, scan, scanned
from bytelax.decode.drafters import Stateless, expect
from bytelax.decode.targets.blt import BLTTarget, Trial
from bytelax.models.blt import ByteCaches


@dataclasses.dataclass(frozen=True)
class TrueLatents(Stateless):
    """Drafts with the latents and the patches of the model itself, past a few boundaries.

    Attributes:
      draft_length: K, number of bytes drafted.
      patches: number of patches closed in a draft whose latents it knows. Behind them it goes on
        with the last of these. With None it knows all, and is the model itself.
    """

    draft_length: int
    patches: int | None = None

    def fit(self, target):
        expect(target, BLTTarget, self)
        return target

    def propose(self, inputs, draft_state):
        model, target = inputs.model, inputs.target
        latest = inputs.state.frontier.patches[:, None] - 1

        def step(carry, uniform):
            ids, state = carry
            read, caches = model.read(
                ids,
                state.frontier,
                ByteCaches(state.patcher, state.encoder, state.cross),
                start=state.length,
            )
            state = dataclasses.replace(state, **caches._asdict())
            state, chunks = target._close(model, state, read, read.closes)
            patch = read.patch
            if self.patches is not None:
                patch = jnp.minimum(patch, latest + self.patches)
            span = read.span(model.config.decoder.window)
            states, decoder = model.decoder.states(
                ids, read.states, state.contexts, state.decoder, patch=patch, span=span
            )
            state = dataclasses.replace(state, decoder=decoder)
            out = draw(model.logits(states[-1]), inputs.sampling, uniform[:, None])
            closed = read.closes.any(1)
            trial = Trial(state, read.frontier, closed, chunks, jnp.zeros_like(closed), ())
            return (out.ids, target.commit(trial, jnp.ones_like(state.length))), out

        uniforms = inputs.uniforms(self.draft_length)
        _, out = scan(step, (inputs.text.pending, inputs.state), uniforms.T)
        drawn, made = scanned(out), no_passes(len(latest))
        made = made._replace(decoder=made.decoder + self.draft_length)
        steps = 1 + jnp.arange(self.draft_length)
        return draft_of(drawn, step=steps, passes=made), draft_state
