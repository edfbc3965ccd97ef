"""What no pass has written is never read: caches begin full of garbage, and so do idle rows.

Zeros, with which they begin otherwise, hide a rollback that leaves too much in sight.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import generate, methods
from bytelax.decode import Params, Text, stopping
from bytelax.models import kv_cache
from bytelax.targets import module_target
from tests.helpers import models_for_tests as models

GARBAGE = 1e4  # NaN would be an error in itself where a masked value is multiplied by 0
PROMPTS = [b"one two three one two", b"\x00\x01\x00\x01\x00", b"a"]  # and an empty row
RUN = {"max_new_bytes": 40, "logprobs": True}
CASES = {
    "byte transformer": (models.BYTE_LM, "lookup", {"draft_length": 4}),
    "exits": (models.BYTE_LM, "early-exit", {"draft_length": 4, "exit_layer": 1}),
    "BLT": (models.BASE, "blt-s", {"draft_length": 4}),
    "blocks": (
        models.replace(models.BASE, decoder_input="embedding", block_size=4), "blt-dv",
        {"block_size": 4},
    ),
}  # fmt: skip


@pytest.fixture
def spoilt(monkeypatch):
    """Fills new caches and rings with garbage, in programs that are traced from now on."""

    def filled(function):
        @functools.wraps(function)
        def full(*arguments, **keywords):
            return jax.tree.map(
                lambda x: jnp.full_like(x, GARBAGE), function(*arguments, **keywords)
            )

        return full

    def spoil():
        for module, name in ((kv_cache, "zeros"), (module_target, "no_states")):
            monkeypatch.setattr(module, name, filled(getattr(module, name)))
        jax.clear_caches()

    yield spoil
    monkeypatch.undo()
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nothing_that_was_not_written_is_read(name, spoilt):
    config, method, options = CASES[name]
    model = models.model(config)
    before = generate(model, PROMPTS, method=method, **options, **RUN)
    spoilt()
    after = generate(model, PROMPTS, method=method, **options, **RUN)
    assert before.stats.drafted > before.stats.accepted > 0  # it rolled back
    assert after.bytes == before.bytes
    for a, b in zip(after.results, before.results, strict=True):
        np.testing.assert_array_equal(a.log_probs, b.log_probs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["byte transformer", "BLT"])
def test_rows_that_have_ended_may_hold_anything(name):
    config, named, options = CASES[name]
    model = models.model(config)
    method, _ = methods.build(named, model, **options)
    params = Params(model.params)
    start = jax.jit(functools.partial(method.init, budget=30))(
        params, Text.of(PROMPTS[:2], length=64)
    )
    start = dataclasses.replace(start, ended=jnp.array([stopping.RUNNING, stopping.BY_LENGTH]))

    def with_nan(x):
        return x.at[1].set(jnp.nan) if jnp.issubdtype(x.dtype, jnp.floating) else x

    nan = dataclasses.replace(start, state=jax.tree.map(with_nan, start.state))
    decode = jax.jit(method.decode)
    found, wanted = decode(params, nan), decode(params, start)
    np.testing.assert_array_equal(found.text.ids[0], wanted.text.ids[0])
    assert found.counts.bytes[0] == 30
