"""What `jax.vmap` may be taken over: texts, seeds and parameters, under `jit`, beside plain calls.

jaxlib 0.10 used to end in a segmentation fault here: see `read_latent` of the BLT's decoder.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.decode import Params, Sampling, Text
from tests.helpers import models_for_tests as models
from tests.helpers import setups

PROMPTS = [[b"\0\1\0\1\2", b"\1"], [b"\2\2\0", b"\0\0\1\2"]]


@pytest.mark.slow
def test_whole_texts():
    """The least of what crashed."""
    model = models.model(models.PLAIN)
    ids = jnp.asarray(models.random_text(4, 128).reshape(2, 2, 128))
    at_once = jax.jit(jax.vmap(model.logits))(ids)
    np.testing.assert_allclose(at_once[1], model.logits(ids[1]), atol=1e-5)


def stacked(trees):
    return jax.tree.map(lambda *parts: jnp.stack(parts), *trees)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ensemble"),
    [("blt-s", None), ("blt-s", "target"), ("draft model", "drafter")],
)
def test_texts_seeds_and_parameters(name, ensemble):
    """Two batches; of an ensemble, each has parameters of its own."""
    setup = setups.SETUPS[name]()
    method, own = setup.method(), setup.params
    both, given, axes = [own, own], own, Params(None, None)
    if ensemble:
        parts = [jax.tree.map(lambda x, by=by: by * x, getattr(own, ensemble)) for by in (1, -1)]
        both = [own._replace(**{ensemble: part}) for part in parts]
        given, axes = own._replace(**{ensemble: stacked(parts)}), axes._replace(**{ensemble: 0})

    def run(params, text, seeds):
        """Scans a few rounds, then decodes the rest."""
        sampling = Sampling.of(2, temperature=1.0, allow_eos=False)
        decoding = method.init(params, text, budget=6, seeds=seeds, sampling=sampling)
        decoding, _ = jax.lax.scan(
            lambda before, _: (method.round(params, before), None), decoding, None, length=2
        )
        return method.decode(params, decoding).text

    texts = [Text.of(prompts, length=24) for prompts in PROMPTS]
    seeds = jnp.arange(4, dtype=jnp.uint32).reshape(2, 2)
    found = jax.jit(jax.vmap(run, in_axes=(axes, 0, 0)))(given, stacked(texts), seeds)
    for index, (params, text) in enumerate(zip(both, texts, strict=True)):
        alone = jax.jit(run)(params, text, seeds[index])
        np.testing.assert_array_equal(found.ids[index], alone.ids)
        assert (alone.length > text.length).all()
