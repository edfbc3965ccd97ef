"""Hash n-gram ids against 64-bit integers, which JAX does not have here and numpy does."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bytelax.models.blt import encoder
from bytelax.models.blt.encoder import HashConfig

PRIMES = (
    1000000007, 5915587277, 1500450271, 3267000013, 5754853343, 4093082899,
    9576890767, 3628273133, 2860486313, 5463458053, 3367900313,
)  # fmt: skip
LENGTH = 40  # one shape for all: what runs op by op is compiled once


def reference(ids, config):
    """i32[B, W, N] with int64 sums that wrap, and numpy's floor-mod."""
    rows = []
    for function in range(config.functions):
        for group in config.groups:
            total = np.zeros((len(ids), LENGTH - config.history), np.int64)
            power = np.int64(1)
            with np.errstate(over="ignore"):
                for j in range(group):
                    begin = config.history - group + 1 + j
                    total += ids[:, begin : begin + total.shape[1]].astype(np.int64) * power
                    power *= np.int64(PRIMES[function])
            rows.append(total % np.int64(config.vocab) + len(rows) * config.vocab)
    return np.stack(rows, axis=-1)


def hash_ids(ids, config):
    return np.asarray(encoder.hash_ids(jnp.asarray(ids), config=config))


def random_ids(seed):
    ids = np.random.default_rng(seed).integers(0, 260, (4, LENGTH), np.int32)
    ids[0, : LENGTH // 2] = 0  # as before the first byte
    ids[1] = 259
    return ids


@pytest.mark.slow
def test_every_prime_and_group_size_at_the_released_table_size():
    config = HashConfig(groups=tuple(range(1, 17)), vocab=500_002, functions=len(PRIMES))
    ids = random_ids(0)
    assert (reference(ids, config).min(axis=(0, 1)) >= 0).all()
    np.testing.assert_array_equal(hash_ids(ids, config), reference(ids, config))


any_config = given(
    groups=st.lists(st.integers(1, 16), min_size=1, max_size=4).map(tuple),
    vocab=st.sampled_from([1, 2, 256, 500_002, (1 << 24) - 1]) | st.integers(1, (1 << 24) - 1),
    functions=st.integers(1, len(PRIMES)),
    seed=st.integers(0, 99),
)


def check(groups, vocab, functions, seed):
    config = HashConfig(groups=groups, vocab=vocab, functions=functions)
    ids = random_ids(seed)
    np.testing.assert_array_equal(hash_ids(ids, config), reference(ids, config))


@settings(max_examples=4)
@any_config
def test_any_config(groups, vocab, functions, seed):
    check(groups, vocab, functions, seed)


@pytest.mark.exhaustive
@pytest.mark.slow
@settings(max_examples=150)
@any_config
def test_many_configs(groups, vocab, functions, seed):
    check(groups, vocab, functions, seed)


def test_longest_group():
    config = HashConfig(groups=(128,), vocab=(1 << 24) - 1)
    ids = np.full((1, 128), 259, np.int32)
    total = sum(259 * pow(PRIMES[0], j, 1 << 64) for j in range(128)) % (1 << 64)
    signed = total - (1 << 64) if total >> 63 else total
    assert hash_ids(ids, config).tolist() == [[[signed % config.vocab]]]


def test_no_groups():
    config = HashConfig(groups=())
    assert config.history == 0
    assert hash_ids(random_ids(0), config).shape == (4, LENGTH, 0)


@pytest.mark.parametrize(
    "fields", [{"vocab": 0}, {"vocab": 1 << 24}, {"functions": 12}, {"groups": (0,)}]
)
def test_config_errors(fields):
    with pytest.raises(ValueError, match="hash"):
        HashConfig(**fields)
