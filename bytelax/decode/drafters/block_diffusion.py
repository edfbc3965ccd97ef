"""BLT-D and BLT-DV: the decoder fills a block of masked bytes, many in one pass."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from bytelax import vocab
from bytelax.decode import sampling
from bytelax.decode.draft import Draft, DraftPasses, no_passes
from bytelax.decode.drafters.base import expect
from bytelax.decode.targets import local_decoder
from bytelax.decode.targets.blt import Ahead, BLTTarget
from bytelax.decode.unmasking import Unmask, fill_in


@dataclasses.dataclass(frozen=True)
class BlockDiffusion:
    """Denoises one block a round (Fast BLT, arXiv 2605.08044, section 2.2).

    Attributes:
      draft_length: K, bytes of a block.
      unmask: which bytes each pass fills; see `unmasking`.
      latent: where the first pass comes from. "ahead": from the pass that took in the block before,
        for blocks that are kept whole (BLT-D). "reuse": a pass of its own on
        the latest latent. "refresh": the pending byte is taken in first, as published for BLT-DV.
      open_patch: what a block of "ahead" reads that starts within a patch; see `BLTTarget`.
      finish: propose nothing while the next byte stands within a patch, so that plain decoding
        finishes it and all blocks start on a boundary, as in training.
    """

    draft_length: int
    unmask: Unmask
    latent: Literal["ahead", "reuse", "refresh"] = "reuse"
    open_patch: Literal["latest", "truncated"] = "latest"
    finish: bool = False

    def fit(self, target):
        expect(target, BLTTarget, self)
        if self.latent != "ahead":
            return target
        return dataclasses.replace(target, ahead=self.draft_length, open_patch=self.open_patch)

    def init(self, inputs):
        return jnp.ones(inputs.text.ids.shape[0], bool)

    def propose(self, inputs, draft_state):
        model, law, text, state = inputs.model, inputs.sampling, inputs.text, inputs.state
        contexts, decoder, ahead, made = self._first_pass(inputs, model, draft_state)
        # One number a cell: each is filled once, whenever that is.
        uniforms = inputs.uniforms(self.draft_length)
        first = jnp.repeat(state.frontier.last_eos[:, None] + 1, self.draft_length, axis=1)
        patch = jnp.repeat(ahead.patch[:, None], self.draft_length, axis=1)

        def denoise(ids, decoder):
            return local_decoder.run(
                model,
                ids,
                decoder,
                contexts=contexts,
                start=text.length,
                patch=patch,
                first=first,
                causal=0,
            )

        def fill(carry):
            ids, log_probs, confidence, step, logits, decoder, index = carry
            masked = ids == vocab.MASK
            here = sampling.process_logits(logits, law)
            made = fill_in(
                self.unmask,
                sampling.without_banned(logits, law),
                ids,
                masked,
                drawn=None if law.greedy else sampling.sample(here, uniforms),
            )
            ids, chosen, left = made.ids, made.chosen, masked & ~made.chosen
            given = sampling.one_hot(made.drawn, here.shape[-1])
            here = jnp.where(filled_early(left)[..., None], given, here)
            logits, decoder = jax.lax.cond(
                left.any(), lambda: denoise(ids, decoder), lambda: (logits, decoder)
            )
            return (
                ids,
                jnp.where(chosen[..., None], here, log_probs),
                jnp.where(chosen, made.confidence, confidence),
                jnp.where(chosen, index, step),
                logits,
                decoder,
                index + 1,
            )

        shape = (text.ids.shape[0], self.draft_length)
        ids, log_probs, confidence, step, _, decoder, _ = jax.lax.while_loop(
            lambda carry: (carry[0] == vocab.MASK).any(),
            fill,
            (
                jnp.full(shape, vocab.MASK, jnp.int32),
                jnp.zeros((*shape, ahead.logits.shape[-1]), jnp.float32),
                jnp.zeros(shape, jnp.float32),
                jnp.zeros(shape, jnp.int32),
                ahead.logits,
                decoder,
                jnp.ones((), jnp.int32),
            ),
        )
        length = jnp.full_like(text.length, self.draft_length)
        if self.finish:
            length = jnp.where(ahead.on_boundary, length, 0)
        draft = Draft(
            ids=ids,
            length=length,
            log_probs=log_probs,
            step=step,
            passes=made._replace(decoder=made.decoder + step.max(1) - 1),
            confidence=confidence,
            state=dataclasses.replace(state, decoder=decoder),
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return count > 0

    def _first_pass(self, inputs, model, running):
        """Contexts, the decoder's caches with the pending byte in, the first logits, the passes.

        `running` are the rows that moved in the last round: what has ended asks for nothing.
        """
        text, state = inputs.text, inputs.state
        pending = text.pending

        def refreshed():
            target = dataclasses.replace(inputs.target, ahead=self.draft_length)
            _, trial = target.extend(inputs.target_params, state, pending)
            one = jnp.ones_like(text.length)
            patcher = one * (model.config.patching.mode == "entropy")
            made = DraftPasses(one, one, trial.ran_global.astype(jnp.int32), patcher, 0 * one)
            return trial.state.contexts, trial.state.decoder, trial.state.ahead, made

        if self.latent == "refresh":
            return refreshed()
        made = no_passes(text.ids.shape[0])
        if self.latent == "ahead":
            known = state.contexts, state.decoder, state.ahead, made
            stale = running & (state.ahead.start != text.length)
            # Row by row: another row's end or beginning is no reason to start anew.
            return jax.lax.cond(
                stale.any(),
                lambda: jax.tree.map(lambda new, old: _where(stale, new, old), refreshed(), known),
                lambda: known,
            )
        patch = state.frontier.patches - 1
        rows = self.draft_length + 1
        logits, decoder = local_decoder.run(
            model,
            jnp.pad(pending, ((0, 0), (0, self.draft_length)), constant_values=vocab.MASK),
            state.decoder,
            contexts=state.contexts,
            start=state.length,
            patch=jnp.repeat(patch[:, None], rows, axis=1),
            first=jnp.repeat(state.frontier.last_eos[:, None] + 1, rows, axis=1),
            causal=1,
        )
        unknown = jnp.zeros(patch.shape, bool)
        ahead = Ahead(text.length, patch, unknown, logits[:, 1:])
        return state.contexts, decoder, ahead, made._replace(decoder=made.decoder + 1)


def _where(rows, new, old):
    return jnp.where(rows.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def filled_early(left: Bool[Array, "B C"]) -> Bool[Array, "B C"]:
    """Cells to verify as if they had been given instead of drawn: those right of an empty one.

    What a cell that is still `left` will hold depends on those filled to its right. Verifying it
    selects among them, so that once it is accepted they no longer follow the distribution they were
    drawn from, and min(1, p / q) with that q would change the output. Accepting x with p(x), and
    else drawing from p without x, is right wherever x came from.
    """
    return jnp.cumsum(left, axis=1) > 0
