"""BLT-S: the local decoder of a BLT drafts past the boundary of its patch.

It reads an old latent, or predicted ones. Source: self-speculation of Fast BLT, arXiv 2605.08044,
section 5.1.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode.draft import (
    DraftPasses,
    draft_of,
    draw,
    in_a_row,
    no_passes,
    scan,
    scanned,
)
from bytelax.decode.drafter import Drafter, expect
from bytelax.decode.method import Method
from bytelax.decode.target import Text
from bytelax.models import fused, kv_cache, layers, patching, ring
from bytelax.models.block import SwiGLU
from bytelax.models.blt import Context
from bytelax.models.configs import BLTConfig, ModelConfig, TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches
from bytelax.models.layers import Dense, RMSNorm, project
from bytelax.models.patching import OpenPatch, nth_true
from bytelax.models.pytree import pytree, where_rows
from bytelax.options import BltS
from bytelax.systems.fitting import Model, check_latent, checked_length, expect_heads
from bytelax.systems.trained import Drafted, Term, Texts, bound, texts_like
from bytelax.targets.blt import BLTState, BLTTarget
from bytelax.targets.module_target import Rings, with_states

RECENT = 8  # bytes of a patch, its last ones, from which its latent is predicted
_HIDDEN = 32  # of a `ClosingHead`

# The network


class LatentNetwork(nn.Module):
    """Predicts the latents of the patches that a draft closes, and where they close.

    Attributes:
      config: the width, `dim`, and the hidden units, `ffn_dim`.
      execution: how the network runs.
    """

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        self.latents = LatentHead(self.config, self.execution)
        self.closes = ClosingHead(self.config.norm_eps, self.execution)

    def __call__(self, latent, state, recent, inside):
        """Runs both heads, for `init`."""
        return self.latents(latent, state, recent, inside), self.closes(state, recent[..., -1, :])


class LatentHead(nn.Module):
    """Predicts the latent of a patch from the latent before it, its bytes and a decoder state.

    It reads the bytes as the encoder does, as sums of byte and n-gram embeddings, which are looked
    up. So a prediction costs one pass of this network. Predictions can take the place of the latent
    before, to predict the next one.

    Attributes:
      config: the width, `dim`, and the hidden units, `ffn_dim`.
      execution: how the head runs.
    """

    config: TransformerConfig
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self,
        latent: Float[Array, "B P G"],
        state: Float[Array, "B P D"],
        recent: Float[Array, "B P R E"],
        inside: Bool[Array, "B P R"],
    ) -> Float[Array, "B P G"]:
        """Predicts the latent of a patch.

        Args:
          latent: the latent of the patch before.
          state: the decoder's last state at the byte before the last one of the patch. It has not
            read the patch's own latent.
          recent: `Encoder.looked_up` of the latest RECENT bytes, up to the last one of the patch.
          inside: which of these belong to the patch.
        """
        c = self.config
        read = jnp.where(inside[..., None], recent, 0)
        mean = read.sum(-2) / jnp.maximum(inside.sum(-1, keepdims=True), 1).astype(read.dtype)
        parts = {"latent": latent, "state": state, "mean": mean, "last": recent[..., -1, :]}
        normed = [RMSNorm(c.norm_eps, name=f"{name}_norm")(x) for name, x in parts.items()]
        x = project(c.dim, self.execution, name="inward")(jnp.concatenate(normed, axis=-1))
        mlp = self.execution.layer(SwiGLU)(c, self.execution, name="mlp")
        x = x + mlp(RMSNorm(c.norm_eps, name="mlp_norm")(x))
        x = RMSNorm(c.norm_eps, name="norm")(x)
        return project(latent.shape[-1], self.execution, name="out")(x)


class ClosingHead(nn.Module):
    """Predicts whether a byte is the last of its patch, in place of the entropy model.

    Attributes:
      norm_eps: of the norms.
      execution: how the head runs.
    """

    norm_eps: float
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, state: Float[Array, "*B D"], looked_up: Float[Array, "*B E"]
    ) -> Float[Array, " *B"]:
        """Returns the logit, in float32.

        Args:
          state: the decoder's last state at the byte before.
          looked_up: `Encoder.looked_up` of the byte.
        """
        parts = {"state": state, "last": looked_up}
        normed = [RMSNorm(self.norm_eps, name=f"{name}_norm")(x) for name, x in parts.items()]
        x = project(_HIDDEN, self.execution, name="inward")(jnp.concatenate(normed, axis=-1))
        out = Dense((1,), ("embed", None), self.execution, name="out")(nn.silu(x))
        return out[..., 0].astype(jnp.float32)


def network(config: ModelConfig, execution: Execution) -> LatentNetwork:
    """Returns the network of a model."""
    stack = dataclasses.replace(config.trunk, ffn_dim=config.networks.blt_s.ffn_dim)
    return LatentNetwork(stack, execution)


def example(config: BLTConfig) -> tuple:
    """Returns arguments to initialise the network with."""
    states, *_ = texts_like(config)
    recent = jnp.zeros((*states[0].shape[:2], RECENT, config.encoder.dim))
    return states[0], states[-1], recent, jnp.ones(recent.shape[:-1], bool)


# Its loss


_UNROLLED = 2  # patches after the last one that the model has seen
_DISTANCE = 0.3  # weight of a distance of latents; the divergences of bytes have 1


def loss(network: LatentNetwork, texts: Texts) -> list[Drafted | Term]:
    """Judges the predicted latents of all patches, and the predicted ends of patches.

    Latents are judged by the decoder's predictions of all bytes with them in place of the model's:
    `blt_s_1` is predicted from the model's own latents, `blt_s_2` from predicted ones. The network
    also learns to bring the decoder's keys and values of both closer together.
    """
    model, ids, closes, max_patches = texts.model, texts.ids, texts.closes, texts.max_patches
    assert closes is not None  # of a BLT
    read = ids[:, :-1]
    text, looked_up = model.encode(read, max_patches=max_patches), model.looked_up(read)
    state = jnp.pad(texts.hidden[-1][:, :-1], ((0, 0), (1, 0), (0, 0)))  # of the byte before
    end = optax.sigmoid_binary_cross_entropy(network.closes(state, looked_up), closes)
    found: list[Drafted | Term] = [Term("closing_loss", end, read != vocab.BOE)]

    last = nth_true(closes, jnp.arange(text.latents.shape[1]))
    there = last < closes.shape[1]
    last = jnp.where(there, last, 0)
    first = jnp.pad(last[:, :-1] + 1, ((0, 0), (1, 0)))
    recent = last[..., None] + jnp.arange(1 - RECENT, 1)
    inside = there[..., None] & (recent >= first[..., None])
    batch = jnp.arange(ids.shape[0])[:, None]
    bytes_read = looked_up[batch[..., None], jnp.maximum(recent, 0)]
    state = state[batch, last]

    own, latents = model.decoder.context(text.latents), text.latents
    for step in range(1, _UNROLLED + 1):
        before = jnp.pad(latents[:, :-1], ((0, 0), (1, 0), (0, 0)))
        latents = network.latents(before, state, bytes_read, inside)
        states = model.states_under(read, text, latents)[-1]
        name, byte = f"blt_s_{step}", jnp.arange(read.shape[1])[None] + 1
        found.append(Drafted(name, step, model.logits(states), byte))
        apart = _apart_by_variance(model.decoder.context(latents), own, there)
        found.append(Term(f"distance_{name}", apart, there, _DISTANCE / _UNROLLED))
    return found


def _apart_by_variance(contexts, own, there) -> Float[Array, "B P"]:
    """Squared distances of keys and values from a model's own, each relative to its variance."""
    apart = []
    for left, right in zip(jax.tree.leaves(contexts), jax.tree.leaves(own), strict=True):
        where = there.reshape(*there.shape, *(1,) * (right.ndim - 2))
        variance = jnp.var(right, axis=(0, 1), where=where).mean()
        axes = tuple(range(2, right.ndim))
        apart.append(jnp.square(left - right).mean(axes) / jax.lax.stop_gradient(variance + 1e-9))
    return jnp.stack(apart).mean(0)


# The drafter


@pytree
class DecoderState:
    """The state of the local decoder while it runs ahead of its BLT.

    Attributes:
      length: number of processed bytes.
      decoder: self-attention caches of the decoder.
      encoder: those of the encoder, if the decoder reads its states; otherwise empty.
      history: the latest ids, for the hash embeddings of the encoder.
      contexts: keys and values of the latent that the latest byte has read.
      first: first position that a byte sees, the attention window aside.
      hidden: states of the latest bytes, as in `BLTState`.
      windows: number of forward passes.
      open_patch, recent: the open patch, and what the encoder looks up of the latest bytes; None if
        latents are not predicted.
      predicted: number of latents predicted.
    """

    length: Int[Array, " B"]
    decoder: Caches
    encoder: Caches
    history: Int[Array, "B T"]
    contexts: tuple[Context, ...]
    first: Int[Array, " B"]
    hidden: Rings
    windows: Int[Array, " B"]
    open_patch: OpenPatch | None
    recent: Float[Array, "B R E"] | None
    predicted: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class LocalDecoder:
    """Decodes byte by byte with the local decoder of a BLT.

    The global transformer, the entropy model and, if the decoder embeds bytes itself, the encoder
    do not run. Either no patch closes: every byte reads the latent that was the latest when the
    decoder ran ahead. Or a head predicts for each byte, before it is read, whether it is the last
    of its patch. If it is, another head predicts the latent of that patch, which is read from there
    on; its context is kept apart from those of the BLT.

    Attributes:
      target: the BLT, which keeps what is read of its states.
      latents: the network that predicts latents and ends of patches, whose parameters are
        `params["heads"]["blt_s"]`; None predicts none.
    """

    target: BLTTarget
    latents: LatentNetwork | None = None

    def begin(self, params, state: BLTState, text: Text) -> DecoderState:
        """Goes ahead of a BLT, in its caches."""
        batch, config = len(state.length), self.target.module.config
        patch = state.frontier.patches[:, None] - 1
        none = jnp.zeros(batch, jnp.int32)
        ahead = DecoderState(
            length=state.length,
            decoder=state.decoder,
            encoder=state.encoder if config.decoder_input == "encoder" else (),
            history=state.frontier.history,
            contexts=jax.tree.map(lambda slots: ring.at(slots, patch), state.contexts),
            first=state.frontier.last_eos + 1,
            hidden=state.hidden,
            windows=none,
            open_patch=None,
            recent=None,
            predicted=none,
        )
        if self.latents is None:
            return ahead
        recent = _recent_of(self.target.bound(params), text)
        return dataclasses.replace(ahead, open_patch=state.frontier.open_patch, recent=recent)

    def step(
        self, params, state: DecoderState, ids: Int[Array, "B 1"], predict: Callable
    ) -> tuple[Float[Array, "B 1 V"], DecoderState]:
        """Computes the next-byte logits after a byte.

        `predict` predicts a latent, from the arguments of `LatentHead`.
        """
        model = self.target.bound(params)
        c = model.config
        positions = state.length[:, None]
        first = state.first[:, None]
        history = jnp.concatenate([state.history, ids], axis=1)
        latent, contexts, crossed = self._read(state, 0), state.contexts, {}
        if self.latents is not None:
            network = fused.decoding(self.latents).bind({"params": params["heads"]["blt_s"]})
            looked_up = model.encoder.looked_up(history)
            latent, crossed = self._renewed(model, network, state, looked_up, latent, predict)
            contexts = crossed["contexts"]
        encoded, encoder = None, state.encoder
        if c.decoder_input == "encoder":
            span = kv_cache.causal_span(positions, window=c.encoder.window, first=first)
            encoded, written = model.encoder(history, encoder, span=span)
            assert written is not None  # as caches were passed
            encoder = written
        states, decoder = model.decoder.states(
            ids,
            encoded,
            contexts,
            state.decoder,
            patch=jnp.zeros_like(ids),
            span=kv_cache.causal_span(positions, window=c.decoder.window, first=first),
        )
        assert decoder is not None  # as caches were passed
        kept = tuple(states[depth - 1] if depth else latent for depth in self.target.keep)
        state = dataclasses.replace(
            state,
            length=state.length + 1,
            decoder=decoder,
            encoder=encoder,
            history=history[:, 1:],
            hidden=with_states(state.hidden, kept, positions),
            windows=state.windows + 1,
            **crossed,
        )
        return model.logits(states[-1]), state

    def _read(self, state, depth):
        """The state of the latest byte at a depth, of the latent at 0; None if it is not kept."""
        keep = self.target.keep
        if depth not in keep:
            return None
        return ring.at(state.hidden[keep.index(depth)], state.length[:, None] - 1)

    def _renewed(self, model, network, state, looked_up, latent, predict):
        """Predicts the latent that a byte reads, if the byte closes its patch.

        Returns it, and the fields of the state that change.
        """
        place = state.length[:, None]
        recent = jnp.concatenate([state.recent, looked_up], axis=1)[:, 1:]
        hidden = self._read(state, model.config.decoder.layers)
        ends = network.closes(hidden, recent[:, -1:]) > 0
        ends = jnp.where(self.target.agreed(ends.astype(jnp.int32)) > 0, 1.0, -1.0)
        # These take the place of entropies.
        patching_rule = dataclasses.replace(
            model.config.patching, threshold=0.0, monotonicity=False, threshold_add=None
        )
        open_patch = patching.open_patches(state.open_patch, ends, place, config=patching_rule)
        closes = patching.closing(open_patch, place)[:, 0]
        inside = place + jnp.arange(1 - RECENT, 1) >= state.open_patch.start[:, None]

        def new(latent, contexts):
            latent = predict(latent, hidden, recent, inside)
            made = model.decoder.context(latent)
            # A state may keep them in a wider dtype than the model.
            return latent, jax.tree.map(lambda new, old: new.astype(old.dtype), made, contexts)

        before = latent, state.contexts
        after = jax.lax.cond(closes.any(), new, lambda *same: same, *before)
        latent, contexts = where_rows(closes, after, before)
        return latent, {
            "contexts": contexts,
            "open_patch": jax.tree.map(lambda slots: slots[:, 1], open_patch),
            "recent": recent,
            "predicted": state.predicted + closes,
        }


def _recent_of(model: Any, text: Text) -> Float[Array, "B R E"]:
    """Returns what the encoder looks up of the latest bytes before the pending one."""
    count = RECENT + model.config.hashing.history
    places = text.length[:, None] - 1 + jnp.arange(-count, 0)
    ids = jnp.take_along_axis(text.ids, jnp.maximum(places, 0), axis=1)
    return model.encoder.looked_up(jnp.where(places < 0, vocab.BOE, ids))


@dataclasses.dataclass(frozen=True)
class BltSDrafter(Drafter):
    """Drafts byte by byte with the local decoder of a BLT, past the boundary of its patch.

    The decoder continues over patch boundaries, wherever they are. It needs no training,
    unless latents are predicted.

    Attributes:
      draft_length: K, number of bytes drafted per round.
      latent: "reuse" drafts on the latest latent left by the last round's verification, so that a
        round makes one pass of entropy model, encoder and global transformer. If the pending byte
        closes its patch, that latent is one patch old. "refresh" processes the pending byte before
        drafting, as published. This takes a second pass of the entropy model and the encoder, and
        also of the global transformer if the pending byte closes its patch. "predicted" drafts on
        latents that a head predicts, a new one wherever it predicts the end of a patch.
    """

    draft_length: int
    latent: Literal["reuse", "refresh", "predicted"] = "reuse"

    def __post_init__(self):
        check_latent(self, "reuse", "refresh", "predicted")

    def fit(self, target):
        expect(target, BLTTarget, self)
        if self.latent != "predicted":
            return target
        config = target.module.config
        expect_heads(config.networks.blt_s.present, "head of latents")
        return target.keeping(0, config.decoder.layers)  # latents and last states

    def weights_read(self, params, target_params):
        """Returns the number of weights that a pass of the latents' network reads."""
        return layers.weights(target_params["heads"]["blt_s"] if self.latent == "predicted" else ())

    def propose(self, inputs, draft_state):
        target, params, state = inputs.target, inputs.target_params, inputs.state
        pending, uniforms = inputs.text.pending, inputs.uniforms(self.draft_length)
        drawn, made, one = [], no_passes(len(pending)), jnp.ones_like(state.length)
        if self.latent == "refresh":
            logits, trial = target.extend(params, state, pending)
            state = target.commit(trial, one)
            drawn.append(draw(logits, inputs.sampling, uniforms[:, :1]))
            pending, uniforms = drawn[0].ids, uniforms[:, 1:]
            patcher = one * (target.module.config.patching.mode == "entropy")
            made = DraftPasses(one, one, trial.ran_global.astype(jnp.int32), patcher, made[-1])

        module, latents = target.module, None
        if self.latent == "predicted":
            latents = network(module.config, module.execution)
        decoder = LocalDecoder(target, latents)
        predict = functools.partial(self.latent_of, inputs)

        def step(carry, uniform):
            ids, ahead = carry
            logits, ahead = decoder.step(params, ahead, ids, predict)
            out = draw(logits, inputs.sampling, uniform[:, None])
            return (out.ids, ahead), out

        begin = pending, decoder.begin(params, state, inputs.text)
        (_, ahead), out = scan(step, begin, uniforms.T)
        reads_encoder = module.config.decoder_input == "encoder"
        # The state of the BLT, in the buffers that drafting has written to.
        state = dataclasses.replace(
            inputs.state,
            decoder=ahead.decoder,
            encoder=ahead.encoder or inputs.state.encoder,
            hidden=ahead.hidden,
        )
        draft = draft_of(
            in_a_row(*drawn, scanned(out)),
            state=state,
            passes=made._replace(
                decoder=made.decoder + ahead.windows,
                encoder=made.encoder + ahead.windows * reads_encoder,
                draft_model=made.draft_model + ahead.predicted,
            ),
        )
        return draft, draft_state

    def latent_of(self, inputs, latent, hidden, recent, inside):
        """Predicts the latents f[B, 1, G] of the patches that end now; see `LatentNetwork`."""
        heads = bound(inputs, network, "blt_s")
        return heads.latents(latent, hidden, recent[:, None], inside[:, None])


def build(options: BltS, model: Model) -> Method:
    """Returns the method that its options describe."""
    length = checked_length(options.draft_length, model)
    return Method(model.target(), BltSDrafter(length, options.latent))
