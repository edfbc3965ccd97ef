"""BLT-S: the local decoder drafts past the patch boundary, on an old latent or predicted ones."""

import dataclasses
import functools
from typing import Literal

import jax.numpy as jnp

from bytelax.decode.draft import DraftPasses, draft_of, draw, in_a_row, no_passes, scan, scanned
from bytelax.decode.drafters import Stateless, check_latent, expect
from bytelax.decode.targets.blt import BLTTarget
from bytelax.decode.targets.local_decoder import LocalDecoderTarget, predicted, reading_latents


class OfDecoder:
    """Base of drafters that draft what the local decoder would write."""

    draft_length: int
    latent: str

    @property
    def head_of_target(self) -> str | None:
        return "latents" if self.latent == "predicted" else None  # whose weights a pass reads

    def fit(self, target):
        expect(target, BLTTarget, self)
        return reading_latents(target) if self.latent == "predicted" else target

    def decoder(self, target: BLTTarget) -> LocalDecoderTarget:
        """Returns the local decoder of the target that verifies."""
        predicts = self.latent == "predicted"
        return LocalDecoderTarget.of(target, self.draft_length, predicts=predicts)


@dataclasses.dataclass(frozen=True)
class PastBoundary(OfDecoder, Stateless):
    """Drafts byte by byte with the local decoder of a BLT, past the boundary of its patch.

    Self-speculation of Fast BLT (arXiv 2605.08044, section 5.1). The decoder continues whatever the
    entropies say about patch boundaries. Needs no training, unless latents are predicted.

    Attributes:
      draft_length: K, number of bytes drafted per round.
      latent: "reuse" drafts on the latest latent left by the last round's verification, so that a
        round makes one pass of patcher, encoder and global transformer. If the pending byte closes
        its patch, that latent is one patch old. "refresh" processes the pending byte before
        drafting, as published. This takes a second pass of the patcher and the encoder, and also of
        the global transformer if the pending byte closes its patch. "predicted" drafts on latents
        that a head predicts, a new one wherever it says that a patch ends.
    """

    draft_length: int
    latent: Literal["reuse", "refresh", "predicted"] = "reuse"

    def __post_init__(self):
        check_latent(self, "reuse", "refresh", "predicted")

    def propose(self, inputs, draft_state):
        target, params, state = inputs.target, inputs.target_params, inputs.state
        pending, uniforms = inputs.text.pending, inputs.uniforms(self.draft_length)
        drawn, made, one = [], no_passes(len(pending)), jnp.ones_like(state.length)
        if self.latent == "refresh":
            alone = dataclasses.replace(target, synchronous=0)  # a latent is needed now
            logits, trial = alone.extend(params, state, pending)
            state = alone.commit(trial, one)
            drawn.append(draw(logits, inputs.sampling, uniforms[:, :1]))
            pending, uniforms = drawn[0].ids, uniforms[:, 1:]
            patcher = one * (target.module.config.patching.mode == "entropy")
            made = DraftPasses(one, one, trial.ran_global.astype(jnp.int32), patcher, made[-1])

        decoder = self.decoder(target)
        predict = functools.partial(self.latent_of, inputs)

        def step(carry, uniform):
            ids, ahead = carry
            logits, trial = decoder.extend(params, ahead, ids, predict=predict)
            out = draw(logits, inputs.sampling, uniform[:, None])
            return (out.ids, decoder.commit(trial, one)), out

        begin = pending, decoder.begin(params, state, inputs.text)
        (_, ahead), out = scan(step, begin, uniforms.T)
        draft = draft_of(
            in_a_row(*drawn, scanned(out)),
            step=1 + jnp.arange(self.draft_length),
            **decoder.handed_back(inputs.state, ahead, made),
        )
        return draft, draft_state

    def latent_of(self, inputs, latent, hidden, recent, inside):
        """Predicts the latents f[B, 1, G] of the patches that end now; see `LatentHead`."""
        return predicted(inputs.model)(latent, hidden, recent, inside)
