"""Every way to draft, each on a model of three byte values: what the laws of decoding are tried on.

A law is parametrized by names of `SETUPS`; another drafter is another line here.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import pytest

from bytelax import vocab
from bytelax.decode import Empty, Method, Params, lossless, take_all
from bytelax.decode.unmasking import ONE_STEP, confidence
from bytelax.systems import (
    BlockDiffusionDrafter,
    BlockInOrderDrafter,
    BltSDrafter,
    DFlashDrafter,
    DraftModelDrafter,
    EagleDrafter,
    EarlyExitDrafter,
    LayerSkipDrafter,
    LookupDrafter,
    MedusaDrafter,
    MedusaTreeDrafter,
    ParallelDrafter,
    TwoByteDrafter,
)
from bytelax.targets.blt import BLTTarget
from bytelax.targets.byte_lm import ByteLMTarget
from tests.helpers import heads_of_a_blt as blts
from tests.helpers import self_drafting_models as lms
from tests.helpers.models_for_tests import VARIANTS, model, replace

VALUES = 3
SMALL = vocab.OFFSET + VALUES


class Setup(NamedTuple):
    """A target and a drafter, with the weights of both."""

    target: Any
    drafter: Any
    params: Params
    accept: Any = lossless

    def method(self) -> Method:
        return Method(self.target, self.drafter, self.accept)

    def without_drafts(self) -> Method:
        """Plain decoding in windows of the same width."""
        return Method(self.target, Empty(self.drafter.draft_length))

    def in_bfloat16(self) -> "Setup":
        """The same with weights of that type, but for a patcher's."""

        def narrow(path, x):
            return x if path[0].key == "patcher" else x.astype("bfloat16")

        target, *rest = self.params
        return self._replace(params=Params(jax.tree_util.tree_map_with_path(narrow, target), *rest))


def small_blt():
    """A BLT trained on blocks, by its sizes."""
    sizes = {"vocab_size": SMALL, "patcher": {"vocab_size": SMALL}, "patching": {}}
    return model(replace(VARIANTS["own_embedding"], block_size=3, **sizes), scale=2.0)


def cut_blt():
    """With a head of latents, and patches of at most three bytes."""
    sizes = {"vocab_size": SMALL, "patcher": {"vocab_size": SMALL}, "heads": blts.LATENTS.heads}
    return blts.with_latents(replace(VARIANTS["cut"], **sizes))


def on_blt(drafter, of=small_blt, accept=lossless) -> Callable[[], Setup]:
    """A BLT that drafts for itself."""

    @functools.cache
    def make():
        blt = of()
        target = BLTTarget(blt.module, chunk=1, prefill_width=4, prefill_chunk=2)
        return Setup(target, drafter, Params(blt.params), accept)

    return make


def lm_target(lm, keep=(1, 2, 3)):
    return ByteLMTarget(lm.module, keep=keep, prefill_width=4)


def on_lm(drafter, of=lms.trunk) -> Callable[[], Setup]:
    """A byte transformer that drafts for itself."""
    return lambda: Setup(lm_target(of()), drafter, Params(of().params))


def beside_a_draft_model(drafter) -> Callable[[], Setup]:
    """A byte transformer and another one, which is often right."""

    @functools.cache
    def make():
        lm = lms.trunk()
        small = lm_target(lm, keep=())
        other = jax.tree.map(lambda x: x * 0.8, lm.params)
        return Setup(lm_target(lm), drafter(small), Params(lm.params, other))

    return make


CHAINS = {
    "draft model": beside_a_draft_model(lambda small: DraftModelDrafter(small, 3)),
    "lookup": on_lm(LookupDrafter(3, shortest=1, longest=2)),
    "early exit": on_lm(EarlyExitDrafter(3, 2, hand_over=False)),
    "exit head": on_lm(EarlyExitDrafter(3, 2, head=True, hand_over=False)),
    "composed": on_lm(EarlyExitDrafter(4, 2, head=True, two_byte=True, hand_over=False)),
    "layer skip": on_lm(LayerSkipDrafter(3, no_attention=(0, 1), no_mlp=(2,))),
    "medusa": on_lm(MedusaDrafter(3)),
    "two-byte": on_lm(TwoByteDrafter(3)),
    "two-byte of the middle": on_lm(TwoByteDrafter(2)),
    "eagle": on_lm(EagleDrafter(3)),
    "blt-s": on_blt(BltSDrafter(3)),
    "blt-s, refreshed": on_blt(BltSDrafter(3, latent="refresh")),
    "blt-dv": on_blt(BlockDiffusionDrafter(3, confidence(0.9))),  # in any order, by several passes
    "blt-dv in one step": on_blt(BlockDiffusionDrafter(3, ONE_STEP, latent="refresh")),
    "blt-dv in order": on_blt(BlockInOrderDrafter(3), blts.with_block_table),
    "blt-dv in order, refreshed": on_blt(
        BlockInOrderDrafter(3, latent="refresh"), blts.with_block_table
    ),
    "predicted latents": on_blt(BltSDrafter(3, "predicted"), blts.with_latents),
    "eagle of a blt": on_blt(EagleDrafter(3), blts.blt),
    "dflash": on_blt(DFlashDrafter(3), blts.blt),
    "medusa of a blt": on_blt(MedusaDrafter(3), blts.blt),
}
# They verify what other programs computed, so what they write is the target's up to rounding.
HANDED_OVER = {
    "handed over": on_lm(EarlyExitDrafter(3, 2)),
    "composed, handed over": on_lm(EarlyExitDrafter(4, 2, head=True, two_byte=True)),
}
# They lie otherwise in the caches than chains do.
TREES = {
    "medusa tree": on_lm(MedusaTreeDrafter((2, 2, 1), 6)),
    "eagle tree": on_lm(EagleDrafter(5, beam=2, depth=3)),
    "several": beside_a_draft_model(lambda small: ParallelDrafter(DraftModelDrafter(small, 2), 2)),
}
TO_ROUNDING = {*HANDED_OVER, *TREES}
SETUPS = CHAINS | HANDED_OVER | TREES
LOSSY = {
    "blt-d": on_blt(BlockDiffusionDrafter(3, confidence(0.3), latent="ahead"), accept=take_all)
}
# Of those that draft otherwise from one another.
KINDS = [
    "blt-s", "blt-dv", "composed", "handed over", "layer skip", "medusa", "two-byte", "eagle",
    "draft model", "lookup", "dflash", "blt-dv in order",
    "predicted latents",
]  # fmt: skip
# The setups of each lossless method with a name.
OF_METHODS = {
    "ar": [],  # what all others are compared with
    "tuned": [],  # one of the others
    "lookup": ["lookup"],
    "draft-model": ["draft model"],
    "spectr": ["several"],
    "blt-s": ["blt-s", "predicted latents"],
    "blt-dv": ["blt-dv", "blt-dv in one step", "blt-dv in order"],
    "early-exit": ["early exit", "exit head", "handed over"],
    "composed": ["composed", "composed, handed over"],
    "layer-skip": ["layer skip"],
    "medusa": ["medusa", "medusa of a blt", "medusa tree"],
    "two-byte": ["two-byte", "two-byte of the middle"],
    "eagle": ["eagle", "eagle of a blt", "eagle tree"],
    "dflash": ["dflash"],
}


def each(*, fast=(), slow=(), names=SETUPS):
    """Parametrizes a test by setups; those that are named to be neither are exhaustive."""
    marks = dict.fromkeys(names, pytest.mark.exhaustive)
    marks |= dict.fromkeys(slow, pytest.mark.slow) | dict.fromkeys(fast, ())
    return pytest.mark.parametrize("name", [pytest.param(x, marks=m) for x, m in marks.items()])
