"""A byte transformer of three byte values with random heads, and every way it drafts for itself."""

import functools

import jax

from bytelax import vocab
from bytelax.decode import (
    KSeq,
    Tree,
)
from bytelax.options import EagleHead, EarlyExitHead, HeadsConfig, MedusaHead, TwoByteHead
from bytelax.systems import (
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
from bytelax.targets.byte_lm import ByteLMTarget
from tests.helpers.models_for_tests import BYTE_LM, model, replace

SEED = 1  # every drafter is accepted now and then
CONFIG = replace(
    BYTE_LM,
    vocab_size=vocab.OFFSET + 3,
    trunk={"layers": 3, "window": 9},
    heads=HeadsConfig(
        early_exit=EarlyExitHead(depths=(2,)),
        medusa=MedusaHead(count=3, correction=True),
        two_byte=TwoByteHead(depths=(2, 3)),
        eagle=EagleHead(depths=(1, 2, 3)),
    ),
)


@functools.cache
def trunk(dtype="float32"):
    return model(CONFIG, dtype, seed=SEED)


@functools.cache
def qwen():
    """With biases, norms of queries and keys, and without a BOS."""
    parts = {"biases": "qkv", "qk_norm": True}
    return model(replace(CONFIG, trunk=parts, bos=False), seed=SEED)


def target(*, keep=(1, 2, 3), prefill_width=4):
    return ByteLMTarget(trunk().module, keep=keep, prefill_width=prefill_width)


def early_exit(**options):
    """By the model's own output; verification computes everything anew."""
    return EarlyExitDrafter(3, 2, hand_over=False, **options), ()


def handed_over():
    """Verification goes on from the states that drafting computed."""
    return EarlyExitDrafter(3, 2), ()


def exit_head():
    return EarlyExitDrafter(3, 2, head=True, hand_over=False), ()


def composed():
    return EarlyExitDrafter(4, 2, head=True, two_byte=True, hand_over=False), ()


def layer_skip():
    return LayerSkipDrafter(3, no_attention=(0, 1), no_mlp=(2,)), ()


def medusa():
    return MedusaDrafter(3), ()


def two_byte():
    return TwoByteDrafter(3), ()


def two_byte_of_the_middle():
    return TwoByteDrafter(2), ()


def eagle():
    return EagleDrafter(3), ()


def medusa_tree():
    return MedusaTreeDrafter((2, 2, 1), 6), ()


def eagle_tree():
    return EagleDrafter(5, beam=2, depth=3), ()


def noisy():
    return jax.tree.map(lambda x: x * 0.8, trunk().params)


def draft_model():
    return DraftModelDrafter(target(keep=()), 3), noisy()


def several():
    return ParallelDrafter(DraftModelDrafter(target(keep=()), 2), 2), noisy()


def composed_handed_over():
    return EarlyExitDrafter(4, 2, head=True, two_byte=True), ()


def lookup():
    return LookupDrafter(3, shortest=1, longest=2), ()


CHAINS = [
    early_exit, exit_head, composed, layer_skip, medusa, two_byte, two_byte_of_the_middle,
    eagle,
]  # fmt: skip
# They verify what other programs computed, so their bytes are the target's up to rounding.
HANDED_OVER = [handed_over, composed_handed_over]
FOR_ANY = [draft_model, lookup]
# What judges them, since no rule for chains can.
TREES = {
    medusa_tree: Tree(3),
    eagle_tree: Tree(3),
    several: KSeq(2),
}
