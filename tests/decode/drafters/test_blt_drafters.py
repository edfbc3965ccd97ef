"""The drafters inside a BLT: its decoder past a patch, and blocks of masked bytes."""

import functools

import jax
import jax.numpy as jnp
import models_for_tests as models
import numpy as np
import pytest

from bytelax.decode import BLTTarget, Empty, Sampling, Stops, acceptance, loop
from bytelax.decode.drafters import BlockDiffusion, PastBoundary
from bytelax.decode.target import Text
from bytelax.decode.unmasking import Confidence, EntropyBound, OneStep

K = 4
CAPACITY = 96
NEW = 24
PROMPTS = [9, 23, 14]
OWN = models.replace(models.VARIANTS["own_embedding"], block_size=K)
CONFIGS = {"base": models.BASE, "plain": models.PLAIN, "cut": models.VARIANTS["cut"], "own": OWN}


@functools.cache
def model(name, dtype="float32"):
    return models.model(CONFIGS[name], dtype)


def target(module, **fields):
    shapes = {"width": K + 1, "chunk": 2, "prefill_width": 8, "prefill_chunk": 3}
    return BLTTarget(module, CAPACITY, **(shapes | fields))


def prompts(garbage=0):
    ids = np.asarray(models.random_text(len(PROMPTS), CAPACITY, seed=garbage, eos=False))
    real = np.asarray(models.random_text(len(PROMPTS), CAPACITY, eos=False))
    inside = np.arange(CAPACITY) < np.array(PROMPTS)[:, None]
    return Text(jnp.asarray(np.where(inside, real, ids)), jnp.asarray(PROMPTS, jnp.int32))


@functools.partial(jax.jit, static_argnames=("target", "drafter", "accept"))
def run(params, text, law, seeds, *, target, drafter, accept):
    params = {"target": params, "drafter": {}}
    budget = jnp.full(text.length.shape, NEW, jnp.int32)
    decoding = loop.start(
        params, text, target=target, drafter=drafter, draft_length=K, budget=budget, seeds=seeds
    )
    decoding = loop.decode(
        params,
        decoding,
        target=target,
        drafter=drafter,
        accept=accept,
        law=law,
        stops=Stops.of(()),
    )
    return decoding, target.passes(decoding.state)


def decode(model, drafter, text=None, *, temperature=0.0, accept=acceptance.greedy, target_=None):
    text = prompts() if text is None else text
    batch = len(text.length)
    return run(
        model.params,
        text,
        Sampling.of(batch, temperature=temperature, allow_eos=False),
        jnp.arange(batch, dtype=jnp.uint32),
        target=target_ or target(model.module),
        drafter=drafter,
        accept=accept,
    )


def output(decoding):
    ids, end = np.asarray(decoding.text.ids), np.asarray(decoding.text.length)
    return [row[:length].tolist() for row, length in zip(ids, end, strict=True)]


def drafters(name):
    to = target(model(name).module)
    some = {
        "past": PastBoundary(to, K),
        "past, refreshed": PastBoundary(to, K, latent="refresh"),
        "past, first layer": PastBoundary(to, K, depth=1),
    }
    if name == "own":
        some |= {
            "block": BlockDiffusion(to, K, Confidence(0.3)),
            "block, refreshed": BlockDiffusion(to, K, EntropyBound(2.0), latent="refresh"),
            "block, boundaries": BlockDiffusion(to, K, OneStep(), latent="refresh", finish=True),
        }
    return some


# Every drafter, and every kind of BLT, once: a program each takes its time to compile.
CASES = [
    ("base", "past", "float32"),
    ("base", "past", "bfloat16"),
    ("plain", "past, refreshed", "float32"),
    ("cut", "past, first layer", "float32"),
    ("own", "block", "float32"),
    ("own", "block", "bfloat16"),
    ("own", "block, refreshed", "float32"),
    ("own", "block, boundaries", "float32"),
]


@pytest.mark.parametrize(("name", "which", "dtype"), CASES)
def test_greedy_output_is_that_of_the_empty_draft(name, which, dtype):
    small = model(name, dtype)
    plain, _ = decode(small, Empty(K))
    drafted, _ = decode(small, drafters(name)[which])
    assert output(drafted) == output(plain)
    assert int(drafted.counts.drafted.sum()) > 0
