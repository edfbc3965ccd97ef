"""A text that only latents can carry: training by the recipe of docs/training_blt.md must learn it.

Words of three letters and a space, so that a patch of four bytes is a word. Six random words come
five times over. The decoder sees four bytes back, so what comes next is known to the global
transformer alone: without latents a word costs log2(216) / 4 = 1.94 bits per byte, and with them
only the first of five copies does, 0.39 bits per byte on the whole.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.blt.latents import bits_by_latents
from bytelax.models.configs import TransformerConfig
from bytelax.models.patching import PatchingConfig
from bytelax.training import optimizer, train_loop, train_state
from bytelax.training.configs import RunConfig
from bytelax.training.objectives import NextByte
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.runs import TrainConfig

WORDS = np.array(
    [vocab.encode(bytes([*word, 32]), bos=False) for word in itertools.product(b"abcdef", repeat=3)]
)
ROWS, WORDS_A_ROW = 16, 60


def texts(rng):
    blocks = rng.integers(0, len(WORDS), (ROWS, WORDS_A_ROW // 30, 1, 6))
    words = np.broadcast_to(blocks, (*blocks.shape[:2], 5, 6)).reshape(ROWS, WORDS_A_ROW)
    ids = WORDS[words].reshape(ROWS, -1)
    return jnp.asarray(np.pad(ids, ((0, 0), (1, 0)), constant_values=vocab.BOS), jnp.int32)


def stack(dim, layers, window=None):
    return TransformerConfig(
        dim=dim, layers=layers, heads=2, kv_heads=2, head_dim=dim // 2, ffn_dim=3 * dim,
        window=window,
    )  # fmt: skip


MODULE = BLT(
    BLTConfig(
        encoder=stack(32, 1, 8),
        global_transformer=stack(64, 2),
        decoder=stack(32, 1, 4),
        patching=PatchingConfig(mode="stride", stride=4),
        patcher=None,
        hashing=HashConfig(groups=(3,), vocab=509),
        decoder_input="embedding",
        max_bytes=256,
    )
)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_training_learns_what_only_latents_can_carry():
    objective = NextByte(MODULE, max_patches=WORDS_A_ROW + 2)
    settings = OptimizerConfig(name="muon", steps=400, warmup=20, peak=3e-3)
    config = TrainConfig(optimizer=settings, run=RunConfig())
    transformation = optimizer.transformation(settings)
    state = train_state.new_state(
        objective.init(jax.random.key(0)), transformation, objective.trainable
    )
    step = jax.jit(
        train_loop.make_step(objective, optimizer.from_config(config.optimizer), config.run),
        donate_argnums=0,
        compiler_options={"xla_backend_optimization_level": 3},  # 400 steps are worth it
    )
    rng = np.random.default_rng(0)
    for _ in range(settings.steps):
        state, _ = step(state, texts(rng), jax.random.key(1))

    measure = functools.partial(bits_by_latents, MODULE, max_patches=WORDS_A_ROW + 2)
    sums = jax.jit(measure)(state.params, texts(rng))
    bits = {name: float(total / count) for name, (total, count) in sums.items()}
    print(bits)
    assert bits["own"] < 0.8
    assert bits["mean"] > 1.8 and bits["other"] > 1.8 and bits["stale_1"] > 1.8
