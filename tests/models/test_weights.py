"""Weights in the layouts of a TPU and in panels: the same bytes, each axis where it belongs."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import native
from bytelax_kernels.dense.cpu import Panels, dense

import bytelax
from bytelax import loading
from bytelax.models import weights
from bytelax.pods.configs import MeshConfig
from bytelax.pods.sharding import make_mesh
from tests.helpers import models_for_tests as models
from tests.helpers.marks import slow


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
    assert weights.major_to_minor(key(module, "kernel"), shape) == order


def test_tables_and_norms_stay_as_they_are():
    for name, shape in (("embedding", (260, 1024)), ("scale", (1024,)), ("embedding", (3, 130))):
        order = weights.major_to_minor(key("embed", name), shape)
        assert order == tuple(range(len(shape)))


def test_programs_that_are_being_traced_may_ask():
    params = models.model(models.BASE).params
    jax.eval_shape(weights.for_products, params)


@pytest.mark.skipif(not native.available(), reason=str(native.why_not()))
class TestPanels:
    @pytest.mark.parametrize("config", [models.BASE, models.BYTE_LMS["window"]])
    def test_hold_every_kernel(self, config):
        """Multiplied by ones in turn, a kernel in panels gives its rows; tables stay arrays."""
        params = models.model(config).params
        laid = weights.Weights(params).for_device()
        pairs = zip(
            jax.tree_util.tree_leaves_with_path(params),
            jax.tree.leaves(laid, is_leaf=lambda x: isinstance(x, Panels)),
            strict=True,
        )
        count = 0
        for (path, kernel), panels in pairs:
            if path[-1].key != "kernel":
                assert panels is kernel
                continue
            count += 1
            depth = panels.values.shape[1]
            rows = dense(jnp.eye(depth), panels)
            np.testing.assert_array_equal(rows, np.reshape(kernel, (depth, -1)))
            assert panels.gated == (path[-2].key == "gate_up")
        assert count

    @pytest.mark.parametrize("kind", ["float32", slow("bfloat16"), slow("int8")])
    def test_are_all_that_a_model_holds(self, kind):
        """The arrays are gone once the model has been used, and come back bit for bit."""
        base = models.model(models.BASE)
        if kind == "int8":
            model = loading.quantized(base)
        else:
            params = jax.tree.map(lambda x: jnp.array(x, kind), base.params)
            model = bytelax.Model(base.module, params)
            del params
        given = jax.tree.map(np.array, model.params)
        held = [
            weakref.ref(x)
            for path, x in jax.tree_util.tree_leaves_with_path(model.params)
            if key("kernel")[0] in path and x.dtype == kind  # others are those of `base`
        ]
        assert len(held) > 10
        assert model.quantized == (kind == "int8")
        _ = model.device_params
        gc.collect()
        assert all(x() is None for x in held)
        assert model.quantized == (kind == "int8")
        assert jax.tree.structure(model.params) == jax.tree.structure(given)
        jax.tree.map(np.testing.assert_array_equal, model.params, given)
        dtypes = [[x.dtype for x in jax.tree.leaves(tree)] for tree in (model.params, given)]
        assert dtypes[0] == dtypes[1]
        again = bytelax.Model(model.module, model.params)
        assert again.weights_per_pass == model.weights_per_pass

    def test_programs_on_several_devices_read_arrays(self):
        model = models.model(models.BASE).on(make_mesh(MeshConfig(data=2)))
        assert not weights.taken_in_panels(model.params)


@pytest.mark.slow
def test_decoding_is_the_same():
    model = models.model(models.BASE)
    params = model.params  # built from panels each time that it is asked for
    relaid = weights.relaid(params)
    with native.left_out():
        assert not weights.taken_in_panels(params)
        assert weights.for_products(params) is params  # this is no TPU
    layouts = [x.format.layout.major_to_minor for x in jax.tree.leaves(relaid)]
    assert any(order != tuple(range(len(order))) for order in layouts)
    jax.tree.map(np.testing.assert_array_equal, relaid, params)
    same = bytelax.Model(model.module, relaid)
    keywords = {"method": "blt-s", "max_new_bytes": 12, "logprobs": True}
    one, other = (bytelax.generate(each, ["some text"], **keywords) for each in (model, same))
    assert one.bytes == other.bytes
