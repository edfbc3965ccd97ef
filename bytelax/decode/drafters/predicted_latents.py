"""BLT-S over several patches: a head predicts the latents of the patches that a draft closes."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode.draft import no_passes
from bytelax.decode.drafters import Stateless, expect, kept_state
from bytelax.decode.drafters.draft_sampling import draft_of, draw, scan, scanned
from bytelax.decode.target import Target, Text, agreed
from bytelax.decode.targets import ModuleTarget
from bytelax.decode.targets.blt import BLTTarget
from bytelax.models import kv_cache, patching, ring
from bytelax.models.blt import Context
from bytelax.models.configs import PatchingConfig
from bytelax.models.heads import RECENT
from bytelax.models.patching import OpenPatch
from bytelax.models.pytree import where_rows

Kept = TypeVar("Kept", bound=ModuleTarget)


@dataclasses.dataclass(frozen=True)
class PredictedLatents(Stateless):
    """Drafts byte by byte with the local decoder of a BLT, on latents that a head predicts.

    Before it reads a byte, one head says whether the byte is the last of its patch. If it is,
    another one predicts the latent of the patch, and the decoder reads that one from there on. Both
    read only bytes that have been drawn. The context of a predicted latent is kept apart from those
    of the target.

    Attributes:
      draft_length: K, number of bytes drafted per round.
    """

    draft_length: int

    head_of_target = "latents"  # whose weights a pass reads

    def fit(self, target):
        expect(target, BLTTarget, self)
        return reading_latents(target)

    def propose(self, inputs, draft_state):
        model, state = inputs.model, inputs.state
        config = model.config
        reads_encoder = config.decoder_input == "encoder"
        first = state.frontier.last_eos[:, None] + 1

        def step(carry, uniform):
            ids, position, history, recent, open_patch, latent, context, hidden, caches = carry
            history = jnp.concatenate([history, ids], axis=1)
            looked_up = model.encoder.looked_up(history)
            recent = jnp.concatenate([recent[:, 1:], looked_up], axis=1)
            places = position[:, None]
            latent, context, begun, closes = renewed(
                inputs.target, model, latent, context, open_patch, hidden=hidden, recent=recent,
                place=places, predict=functools.partial(self.latent_of, inputs),
            )  # fmt: skip
            encoder, decoder = caches
            encoded = None
            if reads_encoder:
                span = kv_cache.causal_span(places, window=config.encoder.window, first=first)
                encoded, encoder = model.encoder(history, encoder, span=span)
            states, decoder = model.decoder.states(
                ids,
                encoded,
                context,
                decoder,
                patch=jnp.zeros_like(ids),
                span=kv_cache.causal_span(places, window=config.decoder.window, first=first),
            )
            out = draw(model.logits(states[-1]), inputs.sampling, uniform[:, None])
            open_patch = jax.tree.map(lambda slots: slots[:, 1], begun)
            carry = (
                out.ids, position + 1, history[:, 1:], recent, open_patch, latent, context,
                states[-1], (encoder, decoder),
            )  # fmt: skip
            return carry, (out, closes)

        before, patch = inputs.text.length[:, None] - 2, state.frontier.patches[:, None] - 1
        carry = (
            inputs.text.pending,
            state.length,
            state.frontier.history,
            recent_of(model, inputs.text),
            state.frontier.open_patch,
            kept_state(inputs, 0, before),
            jax.tree.map(lambda contexts: ring.at(contexts, patch), state.contexts),
            kept_state(inputs, config.decoder.layers, before),
            (state.encoder if reads_encoder else (), state.decoder),
        )
        uniforms = inputs.uniforms(self.draft_length)
        (*_, (encoder, decoder)), (out, closed) = scan(step, carry, uniforms.T)
        made = no_passes(len(first))
        draft = draft_of(
            scanned(out),
            step=1 + jnp.arange(self.draft_length),
            passes=made._replace(
                decoder=made.decoder + self.draft_length,
                encoder=made.encoder + self.draft_length * reads_encoder,
                draft_model=closed.sum(0),
            ),
            state=dataclasses.replace(
                state, encoder=encoder if reads_encoder else state.encoder, decoder=decoder
            ),
        )
        return draft, draft_state

    def latent_of(self, inputs, latent, hidden, recent, inside):
        """Predicts the latents f[B, 1, G] of the patches that end now; see `LatentHead`."""
        return predicted(inputs.model, latent, hidden, recent, inside)


def reading_latents(target: Kept) -> Kept:
    """Returns the target with the states that a head of latents reads: latents and last states.

    Raises:
      ValueError: the model has no such head.
    """
    config = target.module.config
    if config.heads is None or config.heads.latents is None:
        raise ValueError("the model has no head of latents; `bytelax train heads` trains one")
    return target.keeping(0, config.decoder.layers)


def rule_of(config: PatchingConfig) -> PatchingConfig:
    """Returns the patching rule for what `ends_of` returns in the place of entropies."""
    return dataclasses.replace(config, threshold=0.0, monotonicity=False, threshold_add=None)


def ends_of(
    target: Target, model: Any, hidden: Float[Array, "B N D"], looked_up: Float[Array, "B N E"]
) -> Float[Array, "B N"]:
    """Returns 1 where a head says that a byte is the last of its patch, and -1 elsewhere.

    Args:
      target: the target, for what several devices agree on.
      model: its module, bound.
      hidden: the decoder's last states at the bytes before.
      looked_up: `Encoder.looked_up` of the bytes.
    """
    ends = model.heads.closes(hidden, looked_up) > 0
    return jnp.where(agreed(target, ends.astype(jnp.int32)) > 0, 1.0, -1.0)


def predicted(
    model: Any,
    latent: Float[Array, "B 1 G"],
    hidden: Float[Array, "B 1 D"],
    recent: Float[Array, "B R E"],
    inside: Bool[Array, "B R"],
) -> Float[Array, "B 1 G"]:
    """Predicts the latents of the patches that end now; see `LatentHead`."""
    return model.heads.latents(latent, hidden, recent[:, None], inside[:, None])


def renewed(
    target: Target,
    model: Any,
    latent: Float[Array, "B 1 G"],
    context: tuple[Context, ...],
    open_patch: OpenPatch,
    *,
    hidden: Float[Array, "B 1 D"],
    recent: Float[Array, "B R E"],
    place: Int[Array, "B 1"],
    predict: Callable,
) -> tuple[Float[Array, "B 1 G"], tuple[Context, ...], OpenPatch, Bool[Array, " B"]]:
    """Predicts the latent that a byte reads, which is a new one if the byte closes its patch.

    Args:
      target: as in `ends_of`.
      model: its module, bound.
      latent: the latent that the byte before reads.
      context: the decoder's keys and values of it.
      open_patch: the open patch before the byte.
      hidden: the decoder's last states at the byte before.
      recent: `Encoder.looked_up` of the latest bytes, up to this one.
      place: position of the byte.
      predict: predicts latents, as `predicted` does without the model.

    Returns:
      The latent, its keys and values, the open patch before and after the byte, and the rows in
      which the byte closes its patch.
    """
    ends = ends_of(target, model, hidden, recent[:, -1:])
    begun = patching.open_patches(open_patch, ends, place, config=rule_of(model.config.patching))
    closes = patching.closing(begun, place)[:, 0]
    inside = place + jnp.arange(1 - RECENT, 1) >= open_patch.start[:, None]

    def new(latent, context):
        latent = predict(latent, hidden, recent, inside)
        return latent, model.decoder.context(latent)

    before = latent, context
    after = jax.lax.cond(closes.any(), new, lambda *same: same, *before)
    return *where_rows(closes, after, before), begun, closes


def recent_of(model: Any, text: Text) -> Float[Array, "B R E"]:
    """Returns what the encoder looks up of the latest bytes before the pending one."""
    count = RECENT + model.config.hashing.history
    places = text.length[:, None] - 1 + jnp.arange(-count, 0)
    ids = jnp.take_along_axis(text.ids, jnp.maximum(places, 0), axis=1)
    return model.encoder.looked_up(jnp.where(places < 0, vocab.BOE, ids))
