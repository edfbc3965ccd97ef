"""The laws that `studies/one_step.py` drafts from."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.decode import Method, Params, Sampling, Text
from bytelax.decode.drafter import DraftInput, Empty
from bytelax.testing.exact_law import exact_law
from bytelax.testing.tables import TableTarget, table
from experiments.studies.one_step import ExactDenoiser, laws_ahead

BYTES, PLACES, STEPS = 3, 3, 8  # byte values, bytes ahead, and the denominator of all chances


def laws():
    """f32[V, V, V]: chances of the next byte after two ids, in eighths, so that a grid is exact."""
    rng = np.random.default_rng(1)
    size = vocab.OFFSET + BYTES
    chances = np.zeros((size, size, size))
    eighths = rng.multinomial(STEPS, [1 / BYTES] * BYTES, size=(size, size))
    chances[..., vocab.OFFSET :] = eighths / STEPS
    return chances


def test_the_laws_of_bytes_ahead_are_sums_over_what_comes_between():
    chances, prompts = laws(), vocab.OFFSET + np.array([[0, 1], [2, 0]])
    expected = np.zeros((2, PLACES, chances.shape[-1]))
    for row, prompt in enumerate(prompts):
        for text in itertools.product(range(chances.shape[-1]), repeat=PLACES):
            ids = [*prompt, *text]
            chance = np.prod([chances[tuple(ids[at : at + 3])] for at in range(PLACES)])
            for place, each in enumerate(text):
                expected[row, place, each] += chance
    text = Text(jnp.asarray(prompts), jnp.array([2, 2]))
    target, params = TableTarget(), jnp.log(jnp.asarray(chances, jnp.float32))
    inputs = DraftInput(
        params=(), target=target, target_params=params, state=target.prefill(params, text),
        text=text, sampling=Sampling.of(2, temperature=1.0, allow_eos=False), key=None,
    )  # fmt: skip
    middle = (np.arange(STEPS) + 0.5) / STEPS
    grid = np.array([*itertools.product(middle, repeat=PLACES)], np.float32)
    found = laws_ahead(inputs, jnp.asarray(np.concatenate([grid, grid])))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # What comes between matters: after the likeliest byte alone the law is another one.
    last, likeliest = prompts[0, 1], chances[tuple(prompts[0])].argmax()
    assert not np.allclose(expected[0, 1], chances[last, likeliest], atol=0.05)


def test_its_drafts_leave_the_law_of_the_text_as_it_is():
    params = Params(table(BYTES, seed=1))
    how = {"prompt": [vocab.BOS], "new_bytes": 3, "temperature": 1.0}
    plain = exact_law(Method(TableTarget(), Empty()), params, **how)
    drafted = exact_law(Method(TableTarget(), ExactDenoiser(2, samples=1)), params, **how)
    assert drafted == pytest.approx(plain, abs=1e-6)


def test_the_first_byte_of_an_exact_draft_is_always_kept():
    method = Method(TableTarget(), ExactDenoiser(4, samples=16))
    params = Params(table(BYTES, seed=1, scale=2.0))
    rows = 8
    text = Text(jnp.full((rows, 64), vocab.BOE).at[:, 0].set(vocab.BOS), jnp.ones(rows, jnp.int32))

    @jax.jit
    def counts(sampling):
        decoding = method.init(params, text, budget=48, sampling=sampling)
        return jax.lax.fori_loop(0, 8, lambda _, x: method.round(params, x), decoding).counts

    for temperature in (0.0, 1.0):
        found = counts(Sampling.of(rows, temperature=temperature, allow_eos=False))
        kept = np.asarray(found.accepted)
        assert (kept >= np.asarray(found.rounds)).all() and kept.sum() < 8 * 4 * rows
