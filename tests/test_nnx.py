"""A BLT in the bridge of Flax NNX, as docs/nnx.md does it, beside the same step in Linen."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.helpers import models_for_tests as models

pytest.importorskip("flax", minversion="0.12.8")
from flax import nnx


def wrapped(module, params):
    bridged = nnx.bridge.ToNNX(module)
    for name, part in jax.tree.map(nnx.Param, params).items():
        setattr(bridged, name, part)
    return bridged


def cross_entropy(logits, ids):
    return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()


@pytest.mark.slow
def test_a_step_in_nnx_is_that_in_linen():
    loaded, ids = models.model(models.PLAIN), jnp.asarray(models.random_text(2, 24))
    rule = optax.sgd(0.1)

    def linen_loss(params):
        return cross_entropy(loaded.module.apply({"params": params}, ids[:, :-1]), ids)

    value, grads = jax.jit(jax.value_and_grad(linen_loss))(loaded.params)
    expected = optax.apply_updates(loaded.params, rule.update(grads, rule.init(loaded.params))[0])

    @nnx.jit
    def step(model, optimizer):
        loss = lambda model: cross_entropy(model(ids[:, :-1]), ids)  # noqa: E731
        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    model = wrapped(loaded.module, loaded.params)
    optimizer = nnx.Optimizer(model, rule, wrt=nnx.Param)
    np.testing.assert_allclose(step(model, optimizer), value, rtol=1e-5)
    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    assert jax.tree.structure(params) == jax.tree.structure(expected)
    changed = jax.tree.map(lambda a, b: (a != b).any(), params, loaded.params)
    assert changed["decoder"]["head"]["kernel"] and changed["encoder"]["embed"]["embedding"]
    assert not any(jax.tree.leaves(changed["patcher"])), "patches are discrete"
    for ours, theirs in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_every_model_goes_in_and_comes_back():
    for config in (models.PLAIN, models.BYTE_LM):
        loaded = models.model(config)
        model = wrapped(loaded.module, loaded.params)
        back = nnx.to_pure_dict(nnx.state(model, nnx.Param))
        assert jax.tree.structure(back) == jax.tree.structure(loaded.params)
        shape = nnx.eval_shape(model, jnp.asarray(models.random_text(2, 24)))
        assert shape.shape == (2, 24, 260) and shape.dtype == "float32"
