"""Trees of drafted bytes: which nodes they have, and how much memory they take."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.decode import Method, Params, Text, trees
from bytelax.options import HeadsConfig, MedusaHead
from bytelax.systems import MedusaTreeDrafter
from tests.helpers import models_for_tests as models


@pytest.mark.slow
def test_a_wide_tree_is_grown_from_its_likeliest_nodes():
    many, grown = 5, [trees.root(jnp.ones((3, 1), int))] * 2
    levels = [slice(0, 1)] * 2
    for depth in range(3):
        law = jax.random.normal(jax.random.key(depth), (9,))  # depends on the byte before
        for i, most in enumerate((None, many)):
            before = grown[i].ids[:, levels[i], None] + 3 * jnp.arange(3)[:, None, None]
            logits = law[(before + jnp.arange(4) ** 2) % 9]
            grown[i], levels[i] = trees.grow(
                grown[i], jax.nn.log_softmax(logits), levels[i], children=3, most=most
            )
    whole, own = (trees.prune(tree, many) for tree in grown)
    np.testing.assert_allclose(np.sort(whole.scores), np.sort(own.scores), rtol=1e-6)
    assert grown[0].ids.shape[1] > grown[1].ids.shape[1]


def test_a_wide_tree_takes_little_memory():
    model = models.model(
        models.replace(models.BYTE_LM, heads=HeadsConfig(medusa=MedusaHead(count=3)))
    )
    method, params = Method(model.target(), MedusaTreeDrafter((256,) * 3, 16)), Params(model.params)
    text = Text.of([b"abc"], length=16)
    decoding = jax.eval_shape(lambda: method.init(params, text, budget=3))
    drafted = jax.jit(method.draft).lower(params, decoding).as_text()
    shapes = re.findall(r"tensor<([0-9x]+)x[a-z]", drafted)
    assert max(np.prod([*map(int, shape.split("x"))]) for shape in shapes) < 1 << 20
