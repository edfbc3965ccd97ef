"""Runs the loop with a drafter, and compares with the empty draft at the same shapes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from bytelax.decode import Empty, Method, Params, Sampling, Stops, Text, lossless
from tests.helpers import models_for_tests as models

BUFFER = 128
LENGTHS = np.array([40, 9, 64], np.int32)
BUDGETS = np.array([30, 21, 25], np.int32)


def prompts(seed=0):
    """Ragged; each says the same thing twice, so that there is something to look up."""
    ids = models.random_text(len(LENGTHS), BUFFER, seed, eos=False)
    for row, length in enumerate(LENGTHS):
        half = length // 2
        ids[row, length - half : length] = ids[row, 1 : 1 + half]
    return ids


def run(model, drafter, own=(), *, ids=None, order=slice(None), **more):
    """Decodes the prompts, in another order if one is given."""
    rows = np.arange(len(LENGTHS))[order]
    ids = (prompts() if ids is None else ids)[order]
    law = Sampling.of(len(rows), temperature=more.pop("temperature", 0.0), allow_eos=False)
    target = model.target()
    if keep := more.pop("keep", ()):
        target = dataclasses.replace(target, keep=keep)
    return decode(
        Params(model.params, own),
        Text(jnp.asarray(ids), jnp.asarray(LENGTHS[order])),
        jnp.asarray(BUDGETS[order]),
        jnp.asarray(rows, jnp.uint32),
        law,
        Stops.of(more.pop("stop", [])),
        method=Method(target, drafter, more.pop("accept", lossless)),
    )


@functools.cache
def reference(config, dtype, width):
    return run(models.model(config, dtype), Empty(width))


@functools.partial(jax.jit, static_argnames="method")
def decode(params, text, budget, seeds, law, stops, *, method):
    decoding = method.init(
        params, text, budget=budget, seeds=seeds, sampling=law, stops=stops,
        log_probs=True, origins=True,
    )  # fmt: skip
    return method.decode(params, decoding)


def assert_same(decoding, other):
    """Bitwise: the bytes, and what the target thinks of them."""
    np.testing.assert_array_equal(decoding.text.length, other.text.length)
    np.testing.assert_array_equal(decoding.ended, other.ended)
    there = np.arange(BUFFER) < np.asarray(other.text.length)[:, None]
    np.testing.assert_array_equal(
        np.where(there, decoding.text.ids, 0), np.where(there, other.text.ids, 0)
    )
    np.testing.assert_array_equal(decoding.log_probs, other.log_probs)
