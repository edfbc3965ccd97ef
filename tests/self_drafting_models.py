"""A byte transformer of three byte values with random heads, and every way it drafts for itself."""

import dataclasses
import functools

import jax
from models_for_tests import BYTE_LM, model, replace

from bytelax import vocab
from bytelax.decode import acceptance
from bytelax.decode.drafters import (
    DraftLayer,
    DraftModel,
    EarlyExit,
    LayerSkip,
    MultiByte,
    MultiByteTree,
    Several,
    TwoByte,
)
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.heads import HeadsConfig

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


def target_of(drafter_width, *, keep=(1, 2, 3), capacity=16, prefill_width=4):
    width = drafter_width + 1
    return ByteLMTarget(trunk().module, capacity, width, prefill_width, keep)


def early_exit(*, target, **options):
    """By the model's own output; verification computes everything anew."""
    return EarlyExit(target(3), 3, 2, hand_over=False, **options), ()


def handed_over(*, target):
    """Verification goes on from the states that drafting computed."""
    return EarlyExit(target(3), 3, 2), ()


def exit_head(*, target):
    return EarlyExit(target(3), 3, 2, head=True, hand_over=False), ()


def composed(*, target):
    return EarlyExit(target(4), 4, 2, head=True, two_byte=True, hand_over=False), ()


def layer_skip(*, target):
    return LayerSkip(target(3), 3, no_attention=(0, 1), no_mlp=(2,)), ()


def multi_byte(*, target):
    return MultiByte(target(3), 3), ()


def two_byte(*, target):
    return TwoByte(target(1), 3), ()


def two_byte_of_the_middle(*, target):
    return TwoByte(target(1), 2), ()


def draft_layer(*, target):
    return DraftLayer(target(3), 3), ()


def multi_byte_tree(*, target):
    return MultiByteTree(target(6), (2, 2, 1), 6), ()


def draft_layer_tree(*, target):
    return DraftLayer(target(5), 5, beam=2, depth=3), ()


def several(*, target):
    one = DraftModel(dataclasses.replace(target(2), keep=()), 2)
    noisy = jax.tree.map(lambda x: x * 0.8, trunk().params)
    return Several(one, 2), noisy


CHAINS = [
    early_exit, exit_head, composed, layer_skip, multi_byte, two_byte, two_byte_of_the_middle,
    draft_layer,
]  # fmt: skip
# What judges them, since no rule for chains can.
TREES = {
    multi_byte_tree: acceptance.Tree(3),
    draft_layer_tree: acceptance.Tree(3),
    several: acceptance.SpecTr(2),
}
