"""BLT-D and BLT-DV: the decoder of a BLT unmasks many bytes of a block per pass.

Source: Fast BLT, arXiv 2605.08044, section 2.2.
"""

import dataclasses
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode import sampling, unmasking
from bytelax.decode.acceptance import take_all
from bytelax.decode.draft import Draft, DraftPasses, draft_of, draw, no_passes, scanned
from bytelax.decode.drafter import Drafter, expect
from bytelax.decode.method import Method
from bytelax.decode.unmasking import Unmask, fill_in
from bytelax.models.configs import ModelConfig
from bytelax.models.execution import Execution, rows_of
from bytelax.models.layers import parameter
from bytelax.models.pytree import where_rows
from bytelax.options import BltD, BltDV
from bytelax.systems.fitting import Model, check_latent, expect_heads
from bytelax.systems.trained import Drafted, Texts, bound, texts_like
from bytelax.targets.blt import Ahead, BLTTarget

_RANK = 64  # of a `BlockTableNetwork`
_SMALL, _ZEROS = nn.initializers.normal(0.02), nn.initializers.zeros

# The network


class BlockTableNetwork(nn.Module):
    """What the byte before adds to the logits of a byte in a masked block.

    A table of pairs of bytes, as a product of two matrices of low rank. What the decoder predicts
    for the byte weighs the terms of the product, so that a row depends on the state, too.
    """

    @nn.compact
    def __call__(
        self, before: Int[Array, "*B"], logits: Float[Array, "*B V"]
    ) -> Float[Array, "*B V"]:
        """Returns what to add to the logits of a byte; nothing for special ids.

        Args:
          before: id of the byte before.
          logits: what the decoder predicts for the byte.
        """
        log_probs = jax.nn.log_softmax(logits[..., vocab.OFFSET :].astype(jnp.float32))
        values = log_probs.shape[-1]
        left = parameter(self, "left", _SMALL, (values, _RANK), ("byte", None))
        state = parameter(self, "state", _ZEROS, (values, _RANK), ("byte", None))
        right = parameter(self, "right", _ZEROS, (_RANK, values), (None, "byte"))
        read = values**0.5 * jnp.exp(log_probs / 2)  # its mean square is 1
        terms = rows_of(left, jnp.maximum(before - vocab.OFFSET, 0)) * (1 + read @ state)
        row = (terms @ right).astype(jnp.float32)
        return jnp.pad(row, [(0, 0)] * before.ndim + [(vocab.OFFSET, 0)])


def network(config: ModelConfig, execution: Execution) -> BlockTableNetwork:
    """Returns the block table of a model."""
    return BlockTableNetwork()


def example(config: ModelConfig) -> tuple:
    """Returns arguments to initialise the network with."""
    *_, ids = texts_like(config)
    return ids, jnp.zeros((*ids.shape, config.vocab_size))


# Its loss


def loss(network: BlockTableNetwork, texts: Texts) -> list[Drafted]:
    """Returns the predictions of random masked blocks with the table, place by place."""
    model, ids = texts.model, texts.ids
    size = model.config.networks.blt_d.block_size
    pending = texts.starts(size)
    cells = model.masked_blocks(ids[:, :-1], pending + 1, size=size, max_patches=texts.max_patches)
    drafted = []
    for index in range(size):
        logits = cells[:, :, index]
        if index:  # the decoder has read the byte before the block
            before = jnp.take_along_axis(ids, pending + index, axis=1)
            logits += network(before, logits)
        drafted.append(Drafted(f"blt_d_{index + 1}", index + 1, logits, pending + index + 1))
    return drafted


# The drafters


class _Blocks(Drafter):
    """Base of drafters of blocks of masked bytes; their state is the rows that advanced last."""

    draft_length: int
    latent: str

    def fit(self, target):
        expect(target, BLTTarget, self)
        if target.module.config.decoder_input != "embedding":
            raise ValueError("masked bytes need decoder_input='embedding': a MASK has no state")
        if self.latent != "ahead":
            return target
        return dataclasses.replace(target, ahead=self.draft_length)

    def init(self, inputs):
        return jnp.ones(inputs.text.ids.shape[0], bool)

    def commit(self, inputs, draft_state, trial, count):
        return count > 0

    def first_pass(self, inputs, running):
        """Runs the decoder on a block that is all masked.

        Args:
          inputs: as in `propose`.
          running: the rows that advanced in the last round; others need no new pass.

        Returns:
          Contexts, decoder caches with the pending byte, the block's logits as `Ahead`, and the
          passes made.
        """
        model, text, state = inputs.model, inputs.text, inputs.state
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
            # Only stale rows change: a row must not depend on when others start or end.
            return jax.lax.cond(
                stale.any(),
                lambda: where_rows(stale, refreshed(), known),
                lambda: known,
            )
        patch = state.frontier.patches - 1
        rows = self.draft_length + 1
        logits, decoder = model.decoder.extend(
            jnp.pad(pending, ((0, 0), (0, self.draft_length)), constant_values=vocab.MASK),
            state.decoder,
            contexts=state.contexts,
            start=state.length,
            patch=jnp.repeat(patch[:, None], rows, axis=1),
            first=jnp.repeat(state.frontier.last_eos[:, None] + 1, rows, axis=1),
            causal=1,
        )
        ahead = Ahead(text.length, patch, logits[:, 1:])
        return state.contexts, decoder, ahead, made._replace(decoder=made.decoder + 1)


@dataclasses.dataclass(frozen=True)
class BlockDiffusionDrafter(_Blocks):
    """Drafts one block per round by denoising masked bytes (block diffusion).

    Fast BLT (arXiv 2605.08044, section 2.2).

    Attributes:
      draft_length: K, number of bytes in a block.
      unmask: rule that selects the bytes to fill in after each pass; see `unmasking`.
      latent: where the logits of the first pass come from. "ahead": from the pass that processed
        the previous block, for blocks that are kept whole (BLT-D). "reuse": from a separate decoder
        pass on the latest latent. "refresh": from a pass that processes the pending byte first, as
        published for BLT-DV.
    """

    draft_length: int
    unmask: Unmask
    latent: Literal["ahead", "reuse", "refresh"] = "reuse"

    def __post_init__(self):
        check_latent(self, "ahead", "reuse", "refresh")

    def propose(self, inputs, draft_state):
        model, text, state = inputs.model, inputs.text, inputs.state
        contexts, decoder, ahead, made = self.first_pass(inputs, draft_state)
        # One number per cell suffices, because each cell is filled exactly once.
        uniforms = inputs.uniforms(self.draft_length)
        first = jnp.repeat(state.frontier.last_eos[:, None] + 1, self.draft_length, axis=1)
        patch = jnp.repeat(ahead.patch[:, None], self.draft_length, axis=1)

        def denoise(ids, decoder):
            return model.decoder.extend(
                ids,
                decoder,
                contexts=contexts,
                start=text.length,
                patch=patch,
                first=first,
                causal=0,
            )

        def fill(cells, logits, index):
            ids, log_probs, step = cells
            masked = ids == vocab.MASK
            here = sampling.process_logits(logits, inputs.sampling)
            made = fill_in(
                self.unmask,
                sampling.without_banned(logits, inputs.sampling),
                ids,
                masked,
                drawn=None if inputs.sampling.greedy else sampling.sample(here, uniforms),
            )
            ids, chosen, left = made.ids, made.chosen, masked & ~made.chosen
            given = sampling.one_hot(made.drawn, here.shape[-1])
            here = jnp.where(filled_early(left)[..., None], given, here)
            return (
                ids,
                jnp.where(chosen[..., None], here, log_probs),
                jnp.where(chosen, index, step),
            )

        def agree(cells):
            ids, log_probs, step = cells
            ids, step = inputs.target.agreed((ids, step))
            return ids, log_probs, step

        def run_and_fill(carry):
            cells, decoder, index = carry
            logits, decoder = denoise(cells[0], decoder)
            return agree(fill(cells, logits, index + 1)), decoder, index + 1

        shape = (text.ids.shape[0], self.draft_length)
        empty = (
            jnp.full(shape, vocab.MASK, jnp.int32),
            jnp.zeros((*shape, ahead.logits.shape[-1]), jnp.float32),
            jnp.zeros(shape, jnp.int32),
        )
        # The first filling is outside of the loop: a pass that ran on a condition within it would
        # have XLA copy the caches.
        one = jnp.ones((), jnp.int32)
        (ids, log_probs, step), decoder, _ = jax.lax.while_loop(
            lambda carry: (carry[0][0] == vocab.MASK).any(),
            run_and_fill,
            (agree(fill(empty, ahead.logits, one)), decoder, one),
        )
        draft = Draft(
            ids=ids,
            length=jnp.full_like(text.length, self.draft_length),
            log_probs=log_probs,
            passes=made._replace(decoder=made.decoder + step.max(1) - 1),
            state=dataclasses.replace(state, decoder=decoder),
        )
        return draft, draft_state


def filled_early(left: Bool[Array, "B C"]) -> Bool[Array, "B C"]:
    """Returns the filled cells to verify as deterministic: those to the right of an empty cell.

    What fills a cell that is still empty (`left`) depends on the cells already filled to its right.
    Accepting it therefore selects among their values, which then no longer follow the distribution
    that they were sampled from, and min(1, p / q) with that q would change the output distribution.
    Accepting x with probability p(x), and otherwise drawing from p without x, is correct wherever x
    came from.
    """
    return jnp.cumsum(left, axis=1) > 0


@dataclasses.dataclass(frozen=True)
class BlockInOrderDrafter(_Blocks):
    """Drafts a masked block in one pass of the decoder, and samples it from left to right.

    The pass predicts the bytes of a block apart from one another. A trained table then adds a row
    to the logits of each byte but the first. It depends on the byte sampled before, as the Markov
    head of DSpark does (arXiv 2607.05147), and on the logits themselves. The first byte needs none:
    the decoder has read the byte before the block. Each byte is sampled from a distribution that
    depends only on the bytes before it, and that distribution is reported.

    Attributes:
      draft_length: K, number of bytes in a block.
      latent: as in `BlockDiffusionDrafter`.
    """

    draft_length: int
    latent: Literal["reuse", "refresh"] = "reuse"

    def __post_init__(self):
        check_latent(self, "reuse", "refresh")

    def fit(self, target):
        target = super().fit(target)
        expect_heads(target.module.config.networks.blt_d.present, "block table")
        return target

    def propose(self, inputs, draft_state):
        text, table = inputs.text, bound(inputs, network, "blt_d")
        _, decoder, ahead, made = self.first_pass(inputs, draft_state)
        uniforms = inputs.uniforms(self.draft_length)

        def step(before, place):
            index, logits, uniform = place
            logits += jnp.where(index > 0, table(before, logits), 0)
            drawn = draw(logits[:, None], inputs.sampling, uniform[:, None])
            return drawn.ids[:, 0], drawn

        places = jnp.arange(self.draft_length), ahead.logits.swapaxes(0, 1), uniforms.T
        _, drawn = jax.lax.scan(step, text.pending[:, 0], places)
        draft = draft_of(
            scanned(drawn),
            passes=made,
            state=dataclasses.replace(inputs.state, decoder=decoder),
        )
        return draft, draft_state


def build(options: BltD | BltDV, model: Model) -> Method:
    """Returns the method that its options describe."""
    rule = unmasking.known(options.unmask, alpha=options.alpha, gamma=options.gamma)
    size = _checked_size(options.block_size, model)
    if isinstance(options, BltDV):
        return Method(model.target(), _verified(options, model, size, rule))
    drafter = BlockDiffusionDrafter(size, rule, latent="ahead")
    return Method(model.target(), drafter, take_all)


def _verified(options: BltDV, model: Model, size: int, rule: unmasking.Unmask) -> Drafter:
    one_step = rule == unmasking.ONE_STEP
    if options.table and not one_step:
        raise ValueError("the block table fills a block in one pass: it needs unmask='one-step'")
    has_table = model.config.networks.blt_d.present
    if options.table or (options.table is None and one_step and has_table):
        return BlockInOrderDrafter(size, latent=options.latent)
    return BlockDiffusionDrafter(size, rule, latent=options.latent)


def _checked_size(size: int, model: Model) -> int:
    if model.config.patching is None:
        return size  # the drafter says that it needs a BLT
    trained = model.config.block_size
    if not trained:
        raise ValueError(
            "the model was not trained to fill in masked bytes, as by `bytelax train blt-d`"
        )
    if not 1 <= size <= trained:
        raise ValueError(f"the model was trained on blocks of up to {trained}, got {size}")
    return size
