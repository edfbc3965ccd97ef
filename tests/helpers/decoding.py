"""Runs the loop with a drafter, and compares with the empty draft at the same shapes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.decode import Method, Params, Sampling, Stops, Text
from tests.helpers import models_for_tests as models

BUFFER = 128
LENGTHS = np.array([40, 9, 64], np.int32)
BUDGETS = np.array([30, 21, 25], np.int32)


def prompts(seed=0, *, values=256):
    """Ragged; each says the same thing twice, so that there is something to look up."""
    ids = models.random_text(len(LENGTHS), BUFFER, seed, eos=False)
    for row, length in enumerate(LENGTHS):
        half = length // 2
        ids[row, length - half : length] = ids[row, 1 : 1 + half]
    return np.where(ids < vocab.OFFSET, ids, vocab.OFFSET + ids % values) if values < 256 else ids


def decoded(method, params, *, ids=None, rows=slice(None)):
    """Greedy rows behind some of the prompts."""
    ids = (prompts() if ids is None else ids)[rows]
    return decode(
        params,
        Text(jnp.asarray(ids), jnp.asarray(LENGTHS[rows])),
        jnp.asarray(BUDGETS[rows]),
        jnp.arange(len(ids), dtype=jnp.uint32),
        Sampling.of(len(ids), allow_eos=False),
        Stops.of([]),
        method=method,
    )


def run(model, drafter, own=(), **how):
    return decoded(Method(model.target(), drafter), Params(model.params, own), **how)


@functools.partial(jax.jit, static_argnames="method")
def decode(params, text, budget, seeds, law, stops, *, method):
    decoding = method.init(
        params, text, budget=budget, seeds=seeds, sampling=law, stops=stops,
        log_probs=True, origins=True,
    )  # fmt: skip
    return method.decode(params, decoding)


def assert_same(decoding, other, *, within=0):
    """The bytes, and what the target thinks of them: bitwise, or to rounding."""
    np.testing.assert_array_equal(decoding.text.length, other.text.length)
    np.testing.assert_array_equal(decoding.ended, other.ended)
    there = np.arange(BUFFER) < np.asarray(other.text.length)[:, None]
    np.testing.assert_array_equal(
        np.where(there, decoding.text.ids, 0), np.where(there, other.text.ids, 0)
    )
    np.testing.assert_allclose(decoding.log_probs, other.log_probs, rtol=0, atol=within)
