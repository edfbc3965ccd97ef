"""Weights in the layouts of a TPU, on the CPU: the same bytes, and the axes where they belong."""

import jax
import numpy as np
import pytest

import bytelax
from bytelax.models import weight_layouts
from tests.helpers import models_for_tests as models


def key(*names):
    return tuple(jax.tree_util.DictKey(name) for name in names)


@pytest.mark.parametrize(
    ("module", "shape", "order"),
    [
        ("gate_up", (1024, 2, 2816), (1, 0, 2)),
        ("qkv", (1024, 16, 3, 64), (1, 2, 3, 0)),  # narrow heads do not fill the lanes
        ("qkv", (2048, 16, 3, 128), (1, 2, 0, 3)),
        ("out", (16, 64, 1024), (0, 1, 2)),  # contracts two axes
        ("down", (2816, 1024), (0, 1)),
        ("head", (1024, 260), (1, 0)),
    ],
)
def test_layouts_are_those_that_xla_would_choose(module, shape, order):
    """As `Layout.AUTO` gave them for v5e at the shape of the 1B model."""
    assert weight_layouts.major_to_minor(key(module, "kernel"), shape) == order


def test_tables_and_norms_stay_as_they_are():
    for name, shape in (("embedding", (260, 1024)), ("scale", (1024,)), ("embedding", (3, 130))):
        order = weight_layouts.major_to_minor(key("embed", name), shape)
        assert order == tuple(range(len(shape)))


def test_programs_that_are_being_traced_may_ask():
    params = models.model(models.BASE).params
    jax.eval_shape(weight_layouts.for_products, params)


@pytest.mark.slow
def test_decoding_is_the_same():
    model = models.model(models.BASE)
    relaid = weight_layouts.relaid(model.params)
    assert weight_layouts.for_products(model.params) is model.params  # this is no TPU
    layouts = [x.format.layout.major_to_minor for x in jax.tree.leaves(relaid)]
    assert any(order != tuple(range(len(order))) for order in layouts)
    jax.tree.map(np.testing.assert_array_equal, relaid, model.params)
    same = bytelax.Model(model.module, relaid)
    keywords = {"method": "blt-s", "max_new_bytes": 12, "logprobs": True}
    one, other = (bytelax.generate(each, ["some text"], **keywords) for each in (model, same))
    assert one.bytes == other.bytes
