"""`module.apply` means the same for every architecture."""

import jax
import numpy as np
import pytest

from tests.helpers import models_for_tests as models


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(models.PLAIN, id="blt", marks=pytest.mark.slow),
        pytest.param(models.BYTE_LM, id="byte lm"),
    ],
)
def test_apply_gives_the_logits(config):
    model = models.model(config)
    ids = models.random_text(2, 24)
    logits = jax.jit(model.module.apply)({"params": model.params}, ids)
    assert isinstance(logits, jax.Array)
    assert logits.shape == (2, 24, 260) and logits.dtype == "float32"
    np.testing.assert_allclose(logits, model.logits(ids), atol=1e-5)
