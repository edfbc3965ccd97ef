"""The local decoder of a Byte Latent Transformer as a target of its own, ahead of its BLT."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode.draft import DraftPasses
from bytelax.decode.target import Text, check_window
from bytelax.models import fused, kv_cache, patching, ring
from bytelax.models.blt import BLT, Context
from bytelax.models.configs import PatchingConfig
from bytelax.models.kv_cache import Caches
from bytelax.models.patching import OpenPatch
from bytelax.models.pytree import pytree, where_rows
from bytelax.targets.blt import BLTState, BLTTarget
from bytelax.targets.module_target import ModuleTarget, Rings, with_states

Kept = TypeVar("Kept", bound=ModuleTarget)
RECENT = 8  # bytes of a patch, its last ones, from which its latent is predicted


@pytree
class LocalDecoderState:
    """The local decoder ahead of its BLT.

    Attributes:
      length: number of processed bytes.
      decoder: self-attention caches of the decoder.
      encoder: those of the encoder, if the decoder reads its states; otherwise empty.
      history: the latest ids, for the hash embeddings of the encoder.
      contexts: keys and values of the latent that the latest byte has read.
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

    latent: Float[Array, "B 1 G"]
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
    2605.08044, section 5.1). Or a head says of each byte, before it is read, whether it is the last
    of its patch. If it is, another head predicts the latent of that patch, which is read from there
    on; its context is kept apart from those of the BLT. A window then ends before a byte that
    closes its patch, other than its first one, because the logits after that byte need the new
    latent.

    Attributes:
      module: the BLT.
      room: N, number of bytes that it can write: the caches of the BLT hold no more.
      latents: the network that predicts latents and ends of patches, whose parameters are
        `params["heads"]["blt_s"]`; None predicts none. The target must then keep the latents and
        the last states.
      window: W, width of the widest window passed to `extend`; None leaves it to `Method`.
    """

    module: BLT
    room: int
    latents: Any = None
    window: int | None = None
    keep: tuple[int, ...] = ()
    reach: int | None = 1

    model_kind = "the local decoder of a Byte Latent Transformer"

    @classmethod
    def of(cls, blt: BLTTarget, room: int, *, latents: Any = None) -> "LocalDecoderTarget":
        """Returns the local decoder of a target, from which it takes over `room` bytes ahead."""
        own = cls(blt.module, room, latents, keep=blt.keep, reach=blt.reach)
        return own if latents is None else reading_latents(own)

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
        model = self.bound(params)
        return LocalDecoderState(
            length=state.length,
            decoder=state.decoder,
            encoder=state.encoder if reads_encoder else (),
            history=state.frontier.history,
            contexts=jax.tree.map(lambda slots: ring.at(slots, patch), state.contexts),
            first=state.frontier.last_eos + 1,
            begin=state.length,
            logits=jnp.zeros((batch, self.room, self.vocab_size), jnp.float32),
            hidden=state.hidden,
            windows=jnp.zeros(batch, jnp.int32),
            open_patch=None if self.latents is None else state.frontier.open_patch,
            recent=None if self.latents is None else _recent_of(model, text),
            predicted=jnp.zeros(batch, jnp.int32),
        )

    def extend(
        self,
        params,
        state: LocalDecoderState,
        window: Int[Array, "B W"],
        *,
        most: Int[Array, " B"] | None = None,
        predict: Callable | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        """Computes next-byte logits after each byte of a window; see `Target.extend`.

        `predict` predicts latents in place of the network, from the arguments of its `following`
        for a single patch.
        """
        check_window(window, self.window)
        model = self.bound(params)
        c = model.config
        # The last windows may reach beyond the room. Nothing is written there, where the ring of a
        # stack with an attention window holds positions that are still in sight.
        positions = state.length[:, None] + jnp.arange(window.shape[1])
        positions = jnp.where(positions <= (state.begin + self.room)[:, None], positions, -1)
        first = jnp.broadcast_to(state.first[:, None], window.shape)
        history = jnp.concatenate([state.history, window], axis=1)
        latent, contexts, boundaries = self._read(state, 0), state.contexts, None
        if self.latents is not None:
            network = fused.decoding(self.latents).bind({"params": params["heads"]["blt_s"]})
            looked_up = model.encoder.looked_up(history)
            predict = predict or predicted(network)
            boundaries = self._renewed(model, network, state, looked_up, latent, predict)
            latent, contexts = boundaries.latent, boundaries.contexts
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
        if boundaries is not None and window.shape[1] > 1:
            boundaries, known = self._closed(network, state, looked_up, states[-1], boundaries)
        if latent is not None:
            latent = jnp.broadcast_to(latent, (*window.shape, latent.shape[2]))
        kept = tuple(states[depth - 1] if depth else latent for depth in self.keep)
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
            history=_behind(trial.history, count, kept),
            logits=state.logits.at[row, place].set(trial.logits, mode="drop"),
            windows=state.windows + (count > 0),
        )
        return state if trial.boundaries is None else _crossed(state, trial.boundaries, count)

    def handed_back(
        self, blt: BLTState, ahead: LocalDecoderState, made: DraftPasses
    ) -> dict[str, Any]:
        """Returns `state` and `passes` of a draft: what it had made, and what this target made.

        The state is that of the BLT, in the buffers that the decoder has written ahead in.
        """
        own, encoder = self.passes(ahead), ahead.encoder or blt.encoder
        return {
            "state": dataclasses.replace(
                blt, decoder=ahead.decoder, encoder=encoder, hidden=ahead.hidden
            ),
            "passes": made._replace(
                decoder=made.decoder + own["decoder_passes"],
                encoder=made.encoder + own["encoder_passes"],
                draft_model=made.draft_model + ahead.predicted,
            ),
        }

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

    def _read(self, state, depth):
        """The state of the latest byte at a depth, of the latent at 0; None if it is not kept."""
        if depth not in self.keep:
            return None
        return ring.at(state.hidden[self.keep.index(depth)], state.length[:, None] - 1)

    def _renewed(self, model, network, state, looked_up, latent, predict):
        """Predicts the latent that the first byte of a window reads, if that closes its patch."""
        place = state.length[:, None]
        recent = jnp.concatenate([state.recent, looked_up], axis=1)
        latest = recent[:, 1 : RECENT + 1]
        hidden = self._read(state, model.config.decoder.layers)
        ends = self._ends(network, hidden, latest[:, -1:])
        rule = _rule_of(model.config.patching)
        open_patch = patching.open_patches(state.open_patch, ends, place, config=rule)
        closes = patching.closing(open_patch, place)[:, 0]
        inside = place + jnp.arange(1 - RECENT, 1) >= state.open_patch.start[:, None]

        def new(latent, contexts):
            latent = predict(latent, hidden, latest, inside)
            made = model.decoder.context(latent)
            # A state may keep them wider than the model makes them.
            return latent, jax.tree.map(lambda new, old: new.astype(old.dtype), made, contexts)

        before = latent, state.contexts
        after = jax.lax.cond(closes.any(), new, lambda *same: same, *before)
        latent, contexts = where_rows(closes, after, before)
        return Boundaries(latent, contexts, open_patch, recent, closes)

    def _closed(self, network, state, looked_up, hidden, first):
        """Advances the patching rule over a window, of whose first byte it is known.

        Args:
          network, state: the network of latents, and the state before the window.
          looked_up: `Encoder.looked_up` of the window.
          hidden: the decoder's last states of the window.
          first: from `_renewed`.

        Returns:
          What `commit` keeps, and the number of bytes that read the latent of their own patch.
        """
        places = state.length[:, None] + jnp.arange(looked_up.shape[1])
        ends = self._ends(network, hidden[:, :-1], looked_up[:, 1:])
        ends = jnp.concatenate([first.open_patch.entropy[:, 1:], ends], axis=1)
        rule = _rule_of(self.module.config.patching)
        open_patch = patching.open_patches(state.open_patch, ends, places, config=rule)
        closes = patching.closing(open_patch, places)[:, 1:]
        known = 1 + jnp.cumprod(~closes, axis=1).sum(1)
        return first._replace(open_patch=open_patch), known

    def _ends(self, network, hidden, looked_up):
        """Returns 1 where a head says that a byte is the last of its patch, and -1 elsewhere.

        Args:
          network: the network, bound.
          hidden: the decoder's last states at the bytes before.
          looked_up: `Encoder.looked_up` of the bytes.
        """
        ends = network.ends(hidden, looked_up) > 0
        return jnp.where(self.agreed(ends.astype(jnp.int32)) > 0, 1.0, -1.0)


def _behind(ids: Int[Array, "B T"], count: Int[Array, " B"], kept: int) -> Int[Array, "B k"]:
    """Returns the `kept` ids of each row from place `count` on. A gather takes longer."""
    found = ids[:, :kept]
    for first in range(1, ids.shape[1] - kept + 1):
        found = jnp.where(count[:, None] == first, ids[:, first : first + kept], found)
    return found


def _crossed(state, found, count):
    """Returns the state behind the first `count` bytes of a window, with what is found in it."""
    row = jnp.arange(len(count))
    ran = count > 0
    return dataclasses.replace(
        state,
        contexts=where_rows(ran, found.contexts, state.contexts),
        open_patch=jax.tree.map(lambda slots: slots[row, count], found.open_patch),
        recent=found.recent[row[:, None], count[:, None] + jnp.arange(RECENT)],
        predicted=state.predicted + (ran & found.renewed),
    )


def reading_latents(target: Kept) -> Kept:
    """Returns the target with the states that latents are predicted from: latents and last ones."""
    return target.keeping(0, target.module.config.decoder.layers)


def predicted(network: Any) -> Callable:
    """Returns `following` of the latents' network, bound, for single patches."""
    return lambda latent, hidden, recent, inside: network.following(
        latent, hidden, recent[:, None], inside[:, None]
    )


def _rule_of(config: PatchingConfig) -> PatchingConfig:
    """Returns the patching rule for what `_ends` returns in the place of entropies."""
    return dataclasses.replace(config, threshold=0.0, monotonicity=False, threshold_add=None)


def _recent_of(model: Any, text: Text) -> Float[Array, "B R E"]:
    """Returns what the encoder looks up of the latest bytes before the pending one."""
    count = RECENT + model.config.hashing.history
    places = text.length[:, None] - 1 + jnp.arange(-count, 0)
    ids = jnp.take_along_axis(text.ids, jnp.maximum(places, 0), axis=1)
    return model.encoder.looked_up(jnp.where(places < 0, vocab.BOE, ids))
