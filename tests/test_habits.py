"""What users of JAX and of other libraries try first works."""

import jax
import numpy as np
import pytest

import bytelax
from bytelax.model import Model
from bytelax.running import requests
from tests.helpers import models_for_tests as models


@pytest.fixture(scope="module")
def model():
    return models.model(models.SMALLEST)


def test_a_single_string_stands_for_a_list_of_it(model):
    one, many = (bytelax.generate(model, x, max_new_bytes=3) for x in ("again", ["again"]))
    assert one.bytes == many.bytes
    scored = [bytelax.score(model, x).log_prob for x in (b"again", [b"again"])]
    assert scored[0] == scored[1]
    assert bytelax.vocab.encode("é", eos=True) == [1, 0xC3 + 4, 0xA9 + 4, 2]
    assert requests.stops("\n\n", 2) == ((b"\n\n",),)


def test_methods_are_the_functions_of_the_same_names(model):
    request = {"max_new_bytes": 3, "temperature": 1.0, "seeds": 5}
    assert (
        model.generate("again", **request).bytes
        == bytelax.generate(model, "again", **request).bytes
    )
    assert model.score("again").log_prob == bytelax.score(model, "again").log_prob


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_a_key_draws_the_seeds(kind):
    drawn = [requests.row_seeds(jax.random.key(seed, impl=kind), 4) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert len({*drawn[0].tolist(), *drawn[2].tolist()}) == 8
    with jax.enable_x64(True), jax.threefry_partitionable(False):
        again = requests.row_seeds(jax.random.key(0, impl=kind), 4)
    np.testing.assert_array_equal(drawn[0], again)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_is_shown_in_three_lines(dtype):
    model = models.model(models.BYTE_LM)
    size = sum(x.size for x in jax.tree.leaves(model.params))
    model = Model(model.module, jax.tree.map(lambda x: x.astype(dtype), model.params))
    shown = repr(model)
    assert len(shown.splitlines()) == 3
    assert f"ByteLM, {size / 1e6:.3g}M parameters, {dtype})" in shown
    model.logits(np.array([[1, 5]]))  # lays its weights out
    assert repr(model) == shown
