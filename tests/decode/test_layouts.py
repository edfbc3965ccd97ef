"""The layouts that programs for other platforms have, run on the CPU: they write the same bytes."""

import jax
import jax.numpy as jnp
import models_for_tests as models
import numpy as np
import pytest
from bytelax_kernels.dispatch import traced_for

from bytelax import methods
from bytelax.decode import Params, Text


@pytest.mark.parametrize("variant", ["base", pytest.param("cut", marks=pytest.mark.slow)])
def test_caches_of_tpus(variant):
    """Rings that wrap, documents, grouped queries; `cut` slices the bytes of a patch."""
    model = models.model(models.VARIANTS[variant])
    method, own = methods.build("blt-s", model, draft_length=3)
    ids = jnp.pad(models.random_text(2, 24), ((0, 0), (0, 40)))
    text = Text(ids, jnp.asarray([24, 11]))

    def decoded(platform):
        def decode(params, text):
            decoding = method.init(params, text, budget=30)
            return method.decode(params, decoding)

        with traced_for(platform):
            return jax.jit(decode)(Params(model.params, own), text)

    wanted, out = decoded("cpu"), decoded("tpu")
    assert out.state.decoder[0].in_lines and not wanted.state.decoder[0].in_lines
    np.testing.assert_array_equal(out.text.ids, wanted.text.ids)
    np.testing.assert_array_equal(out.counts.rounds, wanted.counts.rounds)
