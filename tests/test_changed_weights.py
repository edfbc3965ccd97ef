"""Weights that are replaced in `model.params` count, and the model lets go of what nobody holds."""

import contextlib
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import native

import bytelax
from tests.helpers import models_for_tests as models

IDS = models.random_text(1, 12)


def fresh(text=b"abcdef"):
    """A model whose arrays nothing else refers to, and that writes this text over and over."""
    chain = models.chain(text)
    return bytelax.Model(chain.module, jax.tree.map(jnp.array, chain.params))


@pytest.fixture(params=["panels", "arrays"])
def kernels(request):
    with native.left_out() if request.param == "arrays" else contextlib.nullcontext():
        yield request.param


def double(head):
    head["kernel"] = 2 * head["kernel"]


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("is_held", [False, True])
def test_an_array_that_is_replaced_counts_from_the_next_use(kernels, used, is_held):
    """Also through a part of the parameters that was taken out before."""
    model = fresh()
    if used:
        model.logits(IDS)
    held = model.params["head"] if is_held else None
    expected = np.asarray(fresh().logits(IDS))
    for _ in range(2):
        double(held or model.params["head"])
        expected = 2 * expected
        np.testing.assert_array_equal(model.logits(IDS), expected)
        np.testing.assert_array_equal(model.logits(IDS), expected)


def test_every_use_sees_them(kernels):
    model, other = fresh(), fresh(b"afedcb")
    how = {"max_new_bytes": 8, "method": "draft-model", "draft_length": 3}
    draft = fresh()
    for _ in range(2):
        out = bytelax.generate(model, [b"a"], draft_model=draft, **how)
        assert out.bytes == [b"bcdefabc"] and out.stats.to_dict()["acceptance"] == 1
    draft.params["head"] = other.params["head"]
    out = bytelax.generate(model, [b"a"], draft_model=draft, **how)
    assert out.bytes == [b"bcdefabc"] and out.stats.to_dict()["acceptance"] < 1
    before = bytelax.score(model, [b"abcdef"]).bits_per_byte
    model.params.update(other.params)
    assert bytelax.generate(model, [b"a"], draft_model=draft, **how).bytes == [b"fedcbafe"]
    assert bytelax.score(model, [b"abcdef"]).bits_per_byte > before + 1


@pytest.mark.skipif(not native.available(), reason=str(native.why_not()))
def test_arrays_that_nobody_holds_are_gone_after_the_next_use():
    model = fresh()
    model.logits(IDS)
    params = model.params
    kernel = weakref.ref(params["head"]["kernel"])
    model.logits(IDS)
    assert model.params is params
    del params
    model.logits(IDS)
    gc.collect()
    assert kernel() is None


def test_params_that_are_assigned_are_refused():
    model = fresh()
    with pytest.raises(AttributeError, match="property 'params' of 'Model' object has no setter"):
        model.params = fresh(b"afedcb").params


def test_a_model_equals_itself_only():
    model = fresh()
    for _ in range(2):
        assert model == model and model in {model}
        assert model != bytelax.Model(model.module, model.params)
        model.logits(IDS)
