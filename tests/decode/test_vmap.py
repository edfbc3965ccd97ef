"""What `jax.vmap` may be taken over: texts, seeds and parameters, under `jit`, beside plain calls.

jaxlib 0.10 used to end in a segmentation fault here: see `read_latent` of the BLT's decoder.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import decode, systems
from tests.helpers import models_for_tests as models

BUDGET, ROUNDS = 6, 2
PROMPTS = [[b"again and again and ", b"What I tell you "], [b"three times", b"is true"]]


@dataclasses.dataclass(frozen=True)
class Bigram(decode.Drafter):
    """Draws each byte from a table of what follows the one before: the drafter of the docs."""

    draft_length: int

    def propose(self, inputs, draft_state):
        def step(last, uniform):
            drawn = decode.draw(inputs.params[last], inputs.sampling, uniform[:, None])
            return drawn.ids, drawn

        uniforms = inputs.uniforms(self.draft_length)
        _, drawn = jax.lax.scan(step, inputs.text.pending, uniforms.T)
        return decode.draft_of(decode.scanned(drawn)), draft_state


TABLE = np.random.default_rng(0).normal(size=(2, 260, 260)).astype(np.float32)
LM = models.BYTE_LM


@pytest.mark.slow
def test_whole_texts():
    """The least of what crashed."""
    model = models.model(models.PLAIN)
    ids = jnp.asarray(models.random_text(4, 128).reshape(2, 2, 128))
    at_once = jax.jit(jax.vmap(model.logits))(ids)
    np.testing.assert_allclose(at_once[1], model.logits(ids[1]), atol=1e-5)


def texts():
    """Two batches of two prompts."""
    batches = [decode.Text.of(prompts, length=40) for prompts in PROMPTS]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *batches)


def written(method, temperature):
    """Scans a few rounds, then decodes the rest."""

    def run(params, text, seeds):
        sampling = decode.Sampling.of(2, temperature=temperature)
        decoding = method.init(params, text, budget=BUDGET, seeds=seeds, sampling=sampling)
        decoding, _ = jax.lax.scan(
            lambda before, _: (method.round(params, before), None), decoding, None, length=ROUNDS
        )
        return method.decode(params, decoding).text

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "drafter", "params", "temperature"),
    [
        (models.VARIANTS["base"], systems.BltSDrafter(4), (), 1.0),
        (LM, Bigram(4), TABLE, 1.0),
    ],
)
def test_texts_seeds_and_tables_of_drafters(config, drafter, params, temperature):
    model = models.model(config)
    run = written(decode.Method(model.target(), drafter), temperature)
    seeds = jnp.arange(4, dtype=jnp.uint32).reshape(2, 2)
    both = decode.Params(model.params, params)
    axes = decode.Params(None, jax.tree.map(lambda _: 0, params))
    at_once = jax.jit(jax.vmap(run, in_axes=(axes, 0, 0)))(both, texts(), seeds)
    one = jax.jit(run)
    for index in range(2):
        batch, seed = jax.tree.map(lambda x, i=index: x[i], (texts(), seeds))
        alone = one(
            decode.Params(model.params, jax.tree.map(lambda x, i=index: x[i], params)), batch, seed
        )
        np.testing.assert_array_equal(at_once.ids[index], alone.ids)
        assert (alone.length > batch.length).all()


@pytest.mark.slow
def test_weights_of_the_target():
    """An ensemble: two models of one shape, each with its own text."""
    model, other = models.model(models.PLAIN), models.model(models.PLAIN, seed=1)
    run = written(decode.Method(model.target(), systems.BltSDrafter(4)), 0.0)
    seeds = jnp.zeros((2, 2), jnp.uint32)
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), model.params, other.params)
    at_once = jax.jit(jax.vmap(run))(decode.Params(params), texts(), seeds)
    for index, weights in enumerate((model.params, other.params)):
        batch = jax.tree.map(lambda x, i=index: x[i], texts())
        alone = jax.jit(run)(decode.Params(weights), batch, seeds[index])
        np.testing.assert_array_equal(at_once.ids[index], alone.ids)
