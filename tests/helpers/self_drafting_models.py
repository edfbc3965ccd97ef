"""A byte transformer of three byte values with random heads."""

import functools

from bytelax import vocab
from bytelax.options import EagleHead, EarlyExitHead, HeadsConfig, MedusaHead, TwoByteHead
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
