"""Nested speculation: the local decoder of a BLT drafts, and a cheaper drafter drafts for it."""

import dataclasses
import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode import sampling as sampling_
from bytelax.decode.draft import Draft
from bytelax.decode.drafters import Drafter, check_latent, expect, fitted
from bytelax.decode.drafters.predicted_latents import (
    ends_of,
    predicted,
    reading_latents,
    recent_of,
    renewed,
    rule_of,
)
from bytelax.decode.method import Method, Params
from bytelax.decode.target import Text, check_window
from bytelax.decode.targets import ModuleTarget, Rings, with_states
from bytelax.decode.targets.blt import BLTState, BLTTarget
from bytelax.models import kv_cache, patching, ring
from bytelax.models.blt import BLT, Context
from bytelax.models.heads import RECENT
from bytelax.models.kv_cache import Caches
from bytelax.models.patching import OpenPatch
from bytelax.models.pytree import pytree, where_rows


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
      latent: "reuse" or "predicted", as in `PastBoundary` and `PredictedLatents`.
    """

    draft_length: int
    drafter: Drafter
    latent: Literal["reuse", "predicted"] = "reuse"

    def __post_init__(self):
        check_latent(self, "reuse", "predicted")

    @property
    def head_of_target(self) -> str | None:
        return "latents" if self.latent == "predicted" else None

    def fit(self, target):
        expect(target, BLTTarget, self)
        _ = self._method(target).verifier  # raises if the local decoder lacks what it needs
        return fitted(self.drafter, reading_latents(target) if self.head_of_target else target)

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
            state=target.begin(params.target, inputs.state, text),
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
                draft_model=made.draft_model + decoding.state.predicted,
            ),
            state=returned(inputs.state, decoding.state),
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return self.drafter.commit(inputs, draft_state, trial, count)

    def _method(self, target: BLTTarget) -> Method:
        predicts = self.head_of_target is not None
        own = LocalDecoderTarget(target.module, self.draft_length, predicts)
        return Method(reading_latents(own) if predicts else own, self.drafter)


@pytree
class LocalDecoderState:
    """The local decoder ahead of its BLT.

    Attributes:
      length: number of processed bytes.
      decoder: self-attention caches of the decoder.
      encoder: those of the encoder, if the decoder reads its states; otherwise empty.
      history: the latest ids, for the hash embeddings of the encoder.
      latents: the latent that every byte reads, where a drafter reads it too.
      contexts: keys and values of that latent.
      first: first position that a byte sees, the attention window aside.
      begin: number of bytes that the BLT itself had processed.
      logits: next-byte logits after each of the bytes from `begin` on.
      hidden: states of the latest bytes, as in `BLTState`.
      windows: number of forward passes since `begin`.
      open_patch, recent: the open patch, and what the encoder looks up of the latest bytes; None if
        latents are not predicted.
      predicted: number of latents predicted since `begin`.
    """

    length: Int[Array, " B"]
    decoder: Caches
    encoder: Caches
    history: Int[Array, "B T"]
    latents: Rings
    contexts: tuple[Context, ...]
    first: Int[Array, " B"]
    begin: Int[Array, " B"]
    logits: Float[Array, "B N V"]
    hidden: Rings
    windows: Int[Array, " B"]
    open_patch: OpenPatch | None
    recent: Float[Array, "B R E"] | None
    predicted: Int[Array, " B"]


class Boundaries(NamedTuple):
    """The patches that close in a window, as a head predicts them, and the latent it reads."""

    latents: Rings
    contexts: tuple[Context, ...]
    open_patch: OpenPatch  # [B, W + 1]: entry w is the open patch before byte w
    recent: Float[Array, "B R+W E"]
    renewed: Bool[Array, " B"]  # rows whose latent was predicted


class Trial(NamedTuple):
    """A window that was computed and is not kept yet."""

    state: LocalDecoderState  # as before the window, but with the window in the caches
    history: Int[Array, "B T+W"]
    logits: Float[Array, "B W V"]
    hidden: tuple[Float[Array, "B W _"], ...]  # of the window, at the depths that are kept
    boundaries: Boundaries | None
    known: Int[Array, " B"]  # leading bytes of the window that read the latent of their own patch


@dataclasses.dataclass(frozen=True)
class LocalDecoderTarget(ModuleTarget):
    """Decodes with the local decoder of a BLT, as a target of its own. All fields are static.

    The global transformer, the entropy model and, if the decoder embeds bytes itself, the encoder
    do not run. Either no patch closes: every byte reads the latent that was the latest when the
    decoder ran ahead, and what this target would write is what BLT-S drafts (Fast BLT, arXiv
    2605.08044, section 5.1). Or heads of the BLT predict where patches close and their latents, and
    it would write what `PredictedLatents` drafts. A window then ends before a byte that closes its
    patch, other than its first one, because the logits after that byte need the new latent.

    Attributes:
      module: the BLT.
      room: N, number of bytes that it can write: the caches of the BLT hold no more.
      predicts: whether latents are predicted. The target must keep the latents and the last states.
      window: W, width of the widest window passed to `extend`; None leaves it to `Method`.
    """

    module: BLT
    room: int
    predicts: bool = False
    window: int | None = None
    keep: tuple[int, ...] = ()
    reach: int | None = 1

    model_kind = "the local decoder of a Byte Latent Transformer"

    def prefill(self, params, text: Text) -> LocalDecoderState:
        """Processes all bytes but the pending one with the whole model; see `Target.prefill`."""
        blt = BLTTarget(self.module, window=self.room + 1, keep=self.keep, reach=self.reach)
        return self.begin(params, blt.prefill(params, text), text)

    def begin(self, params, state: BLTState, text: Text) -> LocalDecoderState:
        """Goes ahead of a BLT, in its caches, which hold windows of `room` + 1 bytes.

        Its target must keep the same states.
        """
        batch = len(state.length)
        reads_encoder = self.module.config.decoder_input == "encoder"
        patch = state.frontier.patches[:, None] - 1
        latents, contexts = jax.tree.map(
            lambda slots: ring.at(slots, patch), (state.latents, state.contexts)
        )
        model = self.bound(params)
        return LocalDecoderState(
            length=state.length,
            decoder=state.decoder,
            encoder=state.encoder if reads_encoder else (),
            history=state.frontier.history,
            latents=latents,
            contexts=contexts,
            first=state.frontier.last_eos + 1,
            begin=state.length,
            logits=jnp.zeros((batch, self.room, self.vocab_size), jnp.float32),
            hidden=state.hidden,
            windows=jnp.zeros(batch, jnp.int32),
            open_patch=state.frontier.open_patch if self.predicts else None,
            recent=recent_of(model, text) if self.predicts else None,
            predicted=jnp.zeros(batch, jnp.int32),
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
        first = jnp.broadcast_to(state.first[:, None], window.shape)
        history = jnp.concatenate([state.history, window], axis=1)
        latents, contexts, boundaries = state.latents, state.contexts, None
        if self.predicts:
            looked_up = model.encoder.looked_up(history)
            boundaries = self._renewed(model, state, looked_up)
            latents, contexts = boundaries.latents, boundaries.contexts
        encoded, encoder = None, state.encoder
        if c.decoder_input == "encoder":
            span = kv_cache.causal_span(positions, window=c.encoder.window, first=first)
            encoded, written = model.encoder(history, encoder, span=span)
            assert written is not None  # as caches were passed
            encoder = written
        states, decoder = model.decoder.states(
            window,
            encoded,
            contexts,
            state.decoder,
            patch=jnp.zeros_like(window),
            span=kv_cache.causal_span(positions, window=c.decoder.window, first=first),
        )
        assert decoder is not None  # as caches were passed
        known = jnp.full_like(state.length, window.shape[1])
        if boundaries is not None:
            boundaries, known = self._closed(model, state, looked_up, states[-1], boundaries)
        latents = tuple(jnp.broadcast_to(x, (*window.shape, x.shape[2])) for x in latents)
        kept = (*latents, *(states[depth - 1] for depth in self.keep if depth))
        hidden = with_states(state.hidden, kept, positions)
        state = dataclasses.replace(state, decoder=decoder, encoder=encoder, hidden=hidden)
        logits = model.logits(states[-1])
        return logits, Trial(state, history, logits, kept, boundaries, known)

    def known(self, trial: Trial) -> Int[Array, " B"]:
        """Returns the number of leading bytes behind which the logits are right; see `Target`."""
        return trial.known

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> LocalDecoderState:
        """Keeps the first `count` bytes of the window in each row; see `Target.commit`."""
        state = trial.state
        batch, kept = state.history.shape
        width = trial.logits.shape[1]
        row = jnp.arange(batch)[:, None]
        slot = jnp.arange(width)
        place = (state.length - state.begin)[:, None] + slot
        place = jnp.where(slot < count[:, None], place, self.room)  # out of bounds is dropped
        state = dataclasses.replace(
            state,
            length=state.length + count,
            history=trial.history[row, count[:, None] + jnp.arange(kept)],
            logits=state.logits.at[row, place].set(trial.logits, mode="drop"),
            windows=state.windows + (count > 0),
        )
        return state if trial.boundaries is None else _crossed(state, trial.boundaries, count)

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

    def _renewed(self, model, state, looked_up):
        """Predicts the latent of the patch that the first byte of a window closes."""
        place = state.length[:, None]
        recent = jnp.concatenate([state.recent, looked_up], axis=1)
        layers = model.config.decoder.layers
        (latent,) = state.latents
        latent, contexts, open_patch, closes = renewed(
            self, model, latent, state.contexts, state.open_patch,
            hidden=ring.at(state.hidden[self.keep.index(layers)], place - 1),
            recent=recent[:, 1 : RECENT + 1], place=place,
            predict=functools.partial(predicted, model),
        )  # fmt: skip
        return Boundaries((latent,), contexts, open_patch, recent, closes)

    def _closed(self, model, state, looked_up, hidden, first):
        """Advances the patching rule over a window, of whose first byte it is known.

        Args:
          model, state: the model, and the state before the window.
          looked_up: `Encoder.looked_up` of the window.
          hidden: the decoder's last states of the window.
          first: from `_renewed`.

        Returns:
          What `commit` keeps, and the number of bytes that read the latent of their own patch.
        """
        places = state.length[:, None] + jnp.arange(looked_up.shape[1])
        ends = ends_of(self, model, hidden[:, :-1], looked_up[:, 1:])
        ends = jnp.concatenate([first.open_patch.entropy[:, 1:], ends], axis=1)
        rule = rule_of(model.config.patching)
        open_patch = patching.open_patches(state.open_patch, ends, places, config=rule)
        closes = patching.closing(open_patch, places)[:, 1:]
        known = 1 + jnp.cumprod(~closes, axis=1).sum(1)
        return first._replace(open_patch=open_patch), known


def _crossed(state, found, count):
    """Returns the state behind the first `count` bytes of a window, with what is found in it."""
    row = jnp.arange(len(count))
    ran = count > 0
    latents, contexts = where_rows(
        ran, (found.latents, found.contexts), (state.latents, state.contexts)
    )
    return dataclasses.replace(
        state,
        latents=latents,
        contexts=contexts,
        open_patch=jax.tree.map(lambda slots: slots[row, count], found.open_patch),
        recent=found.recent[row[:, None], count[:, None] + jnp.arange(RECENT)],
        predicted=state.predicted + (ran & found.renewed),
    )


def returned(state: BLTState, ahead: LocalDecoderState) -> BLTState:
    """The state of a BLT in the buffers that its decoder has written ahead in."""
    encoder = ahead.encoder or state.encoder
    return dataclasses.replace(state, decoder=ahead.decoder, encoder=encoder, hidden=ahead.hidden)
