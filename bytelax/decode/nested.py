"""Nested speculation: the local decoder of a BLT drafts, and a cheaper drafter drafts for it."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling as sampling_
from bytelax.decode.draft import Draft
from bytelax.decode.drafters import Drafter, expect, fitted
from bytelax.decode.method import Method, Params
from bytelax.decode.target import Text, check_window
from bytelax.decode.targets import ModuleTarget, Rings, with_states
from bytelax.decode.targets.blt import BLTState, BLTTarget
from bytelax.models import kv_cache, ring
from bytelax.models.blt import BLT, Context
from bytelax.models.kv_cache import Caches
from bytelax.models.pytree import pytree


@dataclasses.dataclass(frozen=True)
class Nested:
    """BLT-S whose own drafting is speculative.

    The local decoder on frozen latents is a target of its own. A second `Method` decodes with it:
    `drafter` proposes, and the decoder verifies several bytes in a pass. What it keeps follows the
    decoder's own distribution, and is the draft that the whole BLT verifies.

    Attributes:
      draft_length: K, number of bytes drafted for the BLT.
      drafter: drafts for the local decoder. Its state is the one after its first proposal of a
        round, which the BLT's windows bring up to date.
    """

    draft_length: int
    drafter: Drafter

    def fit(self, target):
        expect(target, BLTTarget, self)
        _ = self._method(target).verifier  # raises if the local decoder lacks what it needs
        return fitted(self.drafter, target)

    def init(self, inputs):
        return self.drafter.init(inputs)

    def propose(self, inputs, draft_state):
        method, text = self._method(inputs.target), inputs.text
        ids = jnp.pad(text.ids, ((0, 0), (0, self.draft_length)))
        params = Params(inputs.target_params, inputs.params)
        target = method.verifier
        assert isinstance(target, LocalDecoderTarget)
        decoding = method.init(
            params,
            Text(ids, text.length),
            budget=self.draft_length,
            seeds=jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(inputs.key),
            sampling=inputs.sampling,
            state=target.begin(inputs.state),
            draft_state=draft_state,
        )
        if jax.tree.leaves(draft_state):
            # The state behind the text itself stays true; later ones hold what the BLT may refuse.
            draft, draft_state = method.draft(params, decoding)
            decoding = method.verify(params, decoding, draft, draft_state)
        decoding = method.decode(params, decoding)
        place = text.length[:, None] + jnp.arange(self.draft_length)
        ids = jnp.take_along_axis(decoding.text.ids, place, axis=1, mode="clip")
        logits = decoding.state.logits
        made, windows = decoding.counts.draft_passes, target.passes(decoding.state)
        draft = Draft(
            ids=ids,
            length=decoding.text.length - text.length,
            log_probs=sampling_.process_logits(logits, inputs.sampling),
            passes=made._replace(
                decoder=made.decoder + windows["decoder_passes"],
                encoder=made.encoder + windows["encoder_passes"],
            ),
            state=returned(inputs.state, decoding.state),
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return self.drafter.commit(inputs, draft_state, trial, count)

    def _method(self, target: BLTTarget) -> Method:
        return Method(LocalDecoderTarget(target.module, self.draft_length), self.drafter)


@pytree
class LocalDecoderState:
    """The local decoder ahead of its BLT, on the latent of the latest closed patch.

    Attributes:
      length: number of processed bytes.
      decoder: self-attention caches of the decoder.
      encoder: those of the encoder, if the decoder reads its states; otherwise empty.
      history: the latest ids, for the hash embeddings of the encoder.
      contexts: keys and values of the latents. They never change.
      patch: the patch whose latent every byte reads.
      first: first position that a byte sees, the attention window aside.
      begin: number of bytes that the BLT itself had processed.
      logits: next-byte logits after each of the bytes from `begin` on.
      latents: latents of the latest patches, as in `BLTState`. They never change.
      hidden: states of the latest bytes, as in `BLTState`.
      windows: number of forward passes since `begin`.
    """

    length: Int[Array, " B"]
    decoder: Caches
    encoder: Caches
    history: Int[Array, "B T"]
    contexts: tuple[Context, ...]
    patch: Int[Array, " B"]
    first: Int[Array, " B"]
    begin: Int[Array, " B"]
    logits: Float[Array, "B N V"]
    latents: Rings
    hidden: Rings
    windows: Int[Array, " B"]


class Trial(NamedTuple):
    """A window that was computed and is not kept yet."""

    state: LocalDecoderState  # as before the window, but with the window in the caches
    history: Int[Array, "B T+W"]
    logits: Float[Array, "B W V"]
    hidden: tuple[Float[Array, "B W _"], ...]  # of the window, at the depths that are kept


@dataclasses.dataclass(frozen=True)
class LocalDecoderTarget(ModuleTarget):
    """Decodes with the local decoder of a BLT, as a target of its own. All fields are static.

    No patch closes: every byte reads the latent that was the latest when the decoder ran ahead. So
    the global transformer, the entropy model and, if the decoder embeds bytes itself, the encoder
    do not run. What this target would write is what BLT-S drafts (Fast BLT, arXiv 2605.08044,
    section 5.1).

    Attributes:
      module: the BLT.
      room: N, number of bytes that it can write: the caches of the BLT hold no more.
      window: W, width of the widest window passed to `extend`; None leaves it to `Method`.
    """

    module: BLT
    room: int
    window: int | None = None
    keep: tuple[int, ...] = ()
    reach: int | None = 1

    model_kind = "the local decoder of a Byte Latent Transformer"

    def prefill(self, params, text: Text) -> LocalDecoderState:
        """Processes all bytes but the pending one with the whole model; see `Target.prefill`."""
        blt = BLTTarget(self.module, window=self.room + 1, keep=self.keep, reach=self.reach)
        return self.begin(blt.prefill(params, text))

    def begin(self, state: BLTState) -> LocalDecoderState:
        """Goes ahead of a BLT, in its caches, which hold windows of `room` + 1 bytes.

        Its target must keep the same states.
        """
        batch = len(state.length)
        reads_encoder = self.module.config.decoder_input == "encoder"
        return LocalDecoderState(
            length=state.length,
            decoder=state.decoder,
            encoder=state.encoder if reads_encoder else (),
            history=state.frontier.history,
            contexts=state.contexts,
            patch=state.frontier.patches - 1,
            first=state.frontier.last_eos + 1,
            begin=state.length,
            logits=jnp.zeros((batch, self.room, self.vocab_size), jnp.float32),
            latents=state.latents,
            hidden=state.hidden,
            windows=jnp.zeros(batch, jnp.int32),
        )

    def extend(
        self,
        params,
        state: LocalDecoderState,
        window: Int[Array, "B W"],
        *,
        most: Int[Array, " B"] | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        """Computes next-byte logits after each byte of a window; see `Target.extend`."""
        check_window(window, self.window)
        model = self.bound(params)
        c = model.config
        # The last windows may reach beyond the room. Nothing is written there, where the ring of a
        # stack with an attention window holds positions that are still in sight.
        positions = state.length[:, None] + jnp.arange(window.shape[1])
        positions = jnp.where(positions <= (state.begin + self.room)[:, None], positions, -1)
        first, patch = (
            jnp.broadcast_to(x[:, None], window.shape) for x in (state.first, state.patch)
        )
        history = jnp.concatenate([state.history, window], axis=1)
        encoded, encoder = None, state.encoder
        if c.decoder_input == "encoder":
            span = kv_cache.causal_span(positions, window=c.encoder.window, first=first)
            encoded, written = model.encoder(history, encoder, span=span)
            assert written is not None  # as caches were passed
            encoder = written
        states, decoder = model.decoder.states(
            window,
            encoded,
            state.contexts,
            state.decoder,
            patch=patch,
            span=kv_cache.causal_span(positions, window=c.decoder.window, first=first),
        )
        assert decoder is not None  # as caches were passed
        latents = tuple(ring.at(each, patch) for each in state.latents)
        kept = (*latents, *(states[depth - 1] for depth in self.keep if depth))
        hidden = with_states(state.hidden, kept, positions)
        state = dataclasses.replace(state, decoder=decoder, encoder=encoder, hidden=hidden)
        logits = model.logits(states[-1])
        return logits, Trial(state, history, logits, kept)

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> LocalDecoderState:
        """Keeps the first `count` bytes of the window in each row; see `Target.commit`."""
        state = trial.state
        batch, kept = state.history.shape
        width = trial.logits.shape[1]
        row = jnp.arange(batch)[:, None]
        slot = jnp.arange(width)
        place = (state.length - state.begin)[:, None] + slot
        place = jnp.where(slot < count[:, None], place, self.room)  # out of bounds is dropped
        return dataclasses.replace(
            state,
            length=state.length + count,
            history=trial.history[row, count[:, None] + jnp.arange(kept)],
            logits=state.logits.at[row, place].set(trial.logits, mode="drop"),
            windows=state.windows + (count > 0),
        )

    def passes(self, state: LocalDecoderState) -> dict[str, Int[Array, " B"]]:
        """Returns the number of forward passes since `begin`; see `Target.passes`."""
        reads_encoder = self.module.config.decoder_input == "encoder"
        none = jnp.zeros_like(state.windows)
        return {
            "decoder_passes": state.windows,
            "encoder_passes": state.windows * reads_encoder,
            "global_passes": none,
            "patcher_passes": none,
        }


def returned(state: BLTState, ahead: LocalDecoderState) -> BLTState:
    """The state of a BLT in the buffers that its decoder has written ahead in."""
    encoder = ahead.encoder or state.encoder
    return dataclasses.replace(state, decoder=ahead.decoder, encoder=encoder, hidden=ahead.hidden)
