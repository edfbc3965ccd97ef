"""A byte transformer of three byte values with random heads, and every way it drafts for itself."""

import functools

import jax

from bytelax import vocab
from bytelax.decode import (
    DraftLayer,
    DraftModel,
    EarlyExit,
    LayerSkip,
    Lookup,
    MultiByte,
    MultiByteTree,
    ParallelDrafts,
    SpecTr,
    Tree,
    TwoByte,
)
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.heads import HeadsConfig
from tests.helpers.models_for_tests import BYTE_LM, model, replace

SEED = 1  # every drafter is accepted now and then
CONFIG = replace(
    BYTE_LM,
    vocab_size=vocab.OFFSET + 3,
    trunk={"layers": 3, "window": 9},
    heads=HeadsConfig(
        exits=(2,), bytes_ahead=3, correction=True, two_byte=(2, 3), draft_layer=(1, 2, 3)
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
    return EarlyExit(3, 2, hand_over=False, **options), ()


def handed_over():
    """Verification goes on from the states that drafting computed."""
    return EarlyExit(3, 2), ()


def exit_head():
    return EarlyExit(3, 2, head=True, hand_over=False), ()


def composed():
    return EarlyExit(4, 2, head=True, two_byte=True, hand_over=False), ()


def layer_skip():
    return LayerSkip(3, no_attention=(0, 1), no_mlp=(2,)), ()


def multi_byte():
    return MultiByte(3), ()


def two_byte():
    return TwoByte(3), ()


def two_byte_of_the_middle():
    return TwoByte(2), ()


def draft_layer():
    return DraftLayer(3), ()


def multi_byte_tree():
    return MultiByteTree((2, 2, 1), 6), ()


def draft_layer_tree():
    return DraftLayer(5, beam=2, depth=3), ()


def noisy():
    return jax.tree.map(lambda x: x * 0.8, trunk().params)


def draft_model():
    return DraftModel(target(keep=()), 3), noisy()


def several():
    return ParallelDrafts(DraftModel(target(keep=()), 2), 2), noisy()


def composed_handed_over():
    return EarlyExit(4, 2, head=True, two_byte=True), ()


def lookup():
    return Lookup(3, shortest=1, longest=2), ()


CHAINS = [
    early_exit, exit_head, composed, layer_skip, multi_byte, two_byte, two_byte_of_the_middle,
    draft_layer,
]  # fmt: skip
# They verify what other programs computed, so their bytes are the target's up to rounding.
HANDED_OVER = [handed_over, composed_handed_over]
FOR_ANY = [draft_model, lookup]
# What judges them, since no rule for chains can.
TREES = {
    multi_byte_tree: Tree(3),
    draft_layer_tree: Tree(3),
    several: SpecTr(2),
}
