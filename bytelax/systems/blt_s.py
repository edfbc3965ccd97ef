"""BLT-S: the local decoder of a BLT drafts past the boundary of its patch.

On an old latent, or on predicted ones. Source: self-speculation of Fast BLT, arXiv 2605.08044,
section 5.1.
"""

import dataclasses
import functools
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from bytelax import vocab
from bytelax.decode import sampling
from bytelax.decode.draft import (
    Draft,
    DraftPasses,
    draft_of,
    draw,
    in_a_row,
    no_passes,
    scan,
    scanned,
)
from bytelax.decode.drafter import Drafter, expect
from bytelax.decode.method import Method, Params
from bytelax.decode.target import Text
from bytelax.models import layers
from bytelax.models.block import SwiGLU
from bytelax.models.configs import BLTConfig, ModelConfig, TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, RMSNorm, project
from bytelax.models.patching import nth_true
from bytelax.options import BltS
from bytelax.systems.fitting import Model, check_latent, checked_length, expect_heads, heads_of
from bytelax.systems.lookup import LookupDrafter
from bytelax.systems.medusa import MedusaDrafter
from bytelax.systems.trained import Drafted, Term, Texts, texts_like
from bytelax.targets.blt import BLTTarget
from bytelax.targets.local_decoder import (
    RECENT,
    LocalDecoderTarget,
    predicted,
    reading_latents,
)

_HIDDEN = 32  # of a `_ClosingHead`

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
        self.latents = _LatentHead(self.config, self.execution)
        self.closes = _ClosingHead(self.config.norm_eps, self.execution)

    def following(
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
        return self.latents(latent, state, recent, inside)

    def ends(
        self, state: Float[Array, "*B D"], looked_up: Float[Array, "*B E"]
    ) -> Float[Array, " *B"]:
        """Predicts whether a byte is the last of its patch, as a logit in float32.

        Args:
          state: the decoder's last state at the byte before.
          looked_up: `Encoder.looked_up` of the byte.
        """
        return self.closes(state, looked_up)

    def __call__(self, latent, state, recent, inside):
        """Runs both networks, for `init`."""
        return self.following(latent, state, recent, inside), self.ends(state, recent[..., -1, :])


class _LatentHead(nn.Module):
    """Predicts the latent of a patch from the latent before it, its bytes and a decoder state.

    Of the bytes it reads what the encoder reads: the sums of their byte and n-gram embeddings,
    which are looked up. So a prediction costs one pass of this network. Predictions can take the
    place of the latent before, to predict the next one.

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
        """Predicts the latent of a patch; arguments are those of `LatentNetwork.following`."""
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


class _ClosingHead(nn.Module):
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
    assert config.heads is not None
    stack = dataclasses.replace(config.trunk, ffn_dim=config.heads.blt_s.ffn_dim)
    return LatentNetwork(stack, execution)


def example(config: BLTConfig) -> tuple:
    """Returns arguments to initialise the network with."""
    states, *_ = texts_like(config)
    recent = jnp.zeros((*states[0].shape[:2], RECENT, config.encoder.dim))
    return states[0], states[-1], recent, jnp.ones(recent.shape[:-1], bool)


# Its loss


_UNROLLED = 2  # patches behind the last one that the model has seen
_DISTANCE = 0.3  # weight of a distance of latents, beside the divergences of bytes


def loss(network: LatentNetwork, texts: Texts) -> list[Drafted | Term]:
    """Judges the predicted latents of all patches, and the predicted ends of patches.

    Latents are judged by what the decoder predicts of all bytes with them in place of the model's:
    `blt_s_1` follow on the model's own latents, `blt_s_2` on predicted ones. The network also
    learns to bring the keys and values that the decoder makes of them closer together.
    """
    model, ids, closes, max_patches = texts.model, texts.ids, texts.closes, texts.max_patches
    assert closes is not None  # of a BLT
    read = ids[:, :-1]
    text, looked_up = model.encode(read, max_patches=max_patches), model.looked_up(read)
    state = jnp.pad(texts.hidden[-1][:, :-1], ((0, 0), (1, 0), (0, 0)))  # of the byte before
    end = optax.sigmoid_binary_cross_entropy(network.ends(state, looked_up), closes)
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
        latents = network.following(before, state, bytes_read, inside)
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


# The drafters


class _OfDecoder(Drafter):
    """Base of drafters that draft what the local decoder would write."""

    draft_length: int
    latent: str

    def fit(self, target):
        expect(target, BLTTarget, self)
        if self.latent != "predicted":
            return target
        config = target.module.config
        expect_heads(config.heads and config.heads.blt_s.present, "head of latents")
        return reading_latents(target)

    def weights_read(self, params, target_params):
        """Returns the number of weights that a pass of the latents' network reads."""
        return layers.weights(target_params["heads"]["blt_s"] if self.latent == "predicted" else ())

    def decoder(self, target: BLTTarget) -> LocalDecoderTarget:
        """Returns the local decoder of the target that verifies."""
        module, latents = target.module, None
        if self.latent == "predicted":
            latents = network(module.config, module.execution)
        return LocalDecoderTarget.of(target, self.draft_length, latents=latents)


@dataclasses.dataclass(frozen=True)
class BltSDrafter(_OfDecoder):
    """Drafts byte by byte with the local decoder of a BLT, past the boundary of its patch.

    The decoder continues whatever the
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
        """Predicts the latents f[B, 1, G] of the patches that end now; see `LatentNetwork`."""
        model = inputs.model
        latents = inputs.trained(network(model.config, model.execution), "blt_s")
        return predicted(latents)(latent, hidden, recent, inside)


@dataclasses.dataclass(frozen=True)
class NestedDrafter(_OfDecoder):
    """BLT-S whose own drafting is speculative.

    The local decoder on frozen latents is a target of its own. A second `Method` decodes with it:
    `drafter` proposes, and the decoder verifies several bytes in a pass. What it keeps follows the
    decoder's own distribution, and is the draft that the whole BLT verifies.

    Attributes:
      draft_length: K, number of bytes drafted for the BLT.
      drafter: drafts for the local decoder. Its state is the one after its first proposal of a
        round, which the BLT's windows bring up to date.
      latent: as in `BltSDrafter`, without "refresh".
    """

    draft_length: int
    drafter: Drafter
    latent: Literal["reuse", "predicted"] = "reuse"

    def __post_init__(self):
        check_latent(self, "reuse", "predicted")

    def fit(self, target):
        target = super().fit(target)
        _ = self._method(target).verifier  # raises if the local decoder lacks what it needs
        return self.drafter.fit(target)

    def weights_read(self, params, target_params):
        if self.latent == "predicted":
            return super().weights_read(params, target_params)
        return self.drafter.weights_read(params, target_params)

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
        draft = Draft(
            ids=ids,
            length=decoding.text.length - text.length,
            log_probs=sampling.process_logits(decoding.state.logits, inputs.sampling),
            **target.handed_back(inputs.state, decoding.state, decoding.counts.draft_passes),
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return self.drafter.commit(inputs, draft_state, trial, count)

    def _method(self, target: BLTTarget) -> Method:
        return Method(self.decoder(target), self.drafter)


def build(options: BltS, model: Model) -> Method:
    """Returns the method that its options describe."""
    return Method(model.target(), _drafter(options, model))


def _drafter(options: BltS, model: Model) -> Drafter:
    length, latent = checked_length(options.draft_length, model), options.latent
    if options.draft_with is None:
        return BltSDrafter(length, latent)
    if latent == "refresh":
        raise ValueError("draft_with goes with latent 'reuse' or 'predicted', not 'refresh'")
    if options.draft_with == "lookup":
        return NestedDrafter(length, LookupDrafter(min(4, length)), latent)
    ahead = heads_of(model).medusa.count
    return NestedDrafter(length, MedusaDrafter(min(ahead, length)), latent)
