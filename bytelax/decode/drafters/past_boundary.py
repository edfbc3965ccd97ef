"""BLT-S: the local decoder drafts past the patch boundary, on a latent that is not renewed."""

import dataclasses
from typing import Literal

import jax.numpy as jnp

from bytelax.decode.draft import DraftPasses, no_passes
from bytelax.decode.drafters import Stateless, check_latent, expect
from bytelax.decode.drafters.draft_sampling import draft_of, draw, in_a_row, scan, scanned
from bytelax.decode.targets.blt import BLTTarget
from bytelax.models import kv_cache


@dataclasses.dataclass(frozen=True)
class PastBoundary(Stateless):
    """Drafts byte by byte with the local decoder of a plain BLT, past the boundary of its patch.

    Self-speculation of Fast BLT (arXiv 2605.08044, section 5.1). The decoder continues whatever the
    entropies say about patch boundaries. Needs no training.

    Attributes:
      draft_length: K, number of bytes drafted per round.
      latent: "reuse" drafts on the latest latent left by the last round's verification, so that a
        round makes one pass of patcher, encoder and global transformer. If the pending byte closes
        its patch, that latent is one patch old. "refresh" processes the pending byte before
        drafting, as published. This takes a second pass of the patcher and the encoder, and also of
        the global transformer if the pending byte closes its patch.
    """

    draft_length: int
    latent: Literal["reuse", "refresh"] = "reuse"

    def __post_init__(self):
        check_latent(self, "reuse", "refresh")

    def fit(self, target):
        expect(target, BLTTarget, self)
        return target

    def propose(self, inputs, draft_state):
        model, target = inputs.model, inputs.target
        uniforms = inputs.uniforms(self.draft_length)

        pending, state = inputs.text.pending, inputs.state
        drawn, made = [], no_passes(len(pending))
        if self.latent == "refresh":
            logits, trial = target.extend(inputs.target_params, state, pending)
            state = target.commit(trial, jnp.ones_like(state.length))
            drawn.append(draw(logits, inputs.sampling, uniforms[:, :1]))
            pending, uniforms = drawn[0].ids, uniforms[:, 1:]
            one = jnp.ones_like(made.decoder)
            patcher = one * (model.config.patching.mode == "entropy")
            made = DraftPasses(one, one, trial.ran_global.astype(jnp.int32), patcher, made[-1])

        reads_encoder = model.config.decoder_input == "encoder"
        patch = state.frontier.patches[:, None] - 1
        first = state.frontier.last_eos[:, None] + 1

        def step(carry, uniform):
            ids, position, history, encoder, decoder = carry
            encoded = None
            if reads_encoder:
                span = kv_cache.causal_span(
                    position[:, None], window=model.config.encoder.window, first=first
                )
                history = jnp.concatenate([history, ids], axis=1)
                encoded, encoder = model.encoder(history, encoder, span=span)
                history = history[:, 1:]
            logits, decoder = model.decoder.window(
                ids,
                decoder,
                contexts=state.contexts,
                start=position,
                patch=patch,
                first=first,
                causal=1,
                encoded=encoded,
            )
            out = draw(logits, inputs.sampling, uniform[:, None])
            return (out.ids, position + 1, history, encoder, decoder), out

        carry = (
            pending,
            state.length,
            state.frontier.history,
            state.encoder if reads_encoder else (),
            state.decoder,
        )
        (*_, encoder, decoder), out = scan(step, carry, uniforms.T)
        drawn.append(scanned(out))
        steps = uniforms.shape[1]
        draft = draft_of(
            in_a_row(*drawn),
            step=1 + jnp.arange(self.draft_length),
            passes=made._replace(
                decoder=made.decoder + steps, encoder=made.encoder + steps * reads_encoder
            ),
            state=dataclasses.replace(
                inputs.state,
                encoder=encoder if reads_encoder else inputs.state.encoder,
                decoder=decoder,
            ),
        )
        return draft, draft_state
