"""What no pass has written is never read: caches begin full of garbage, and so do idle rows.

Zeros, with which they begin otherwise, hide a rollback that leaves too much in sight.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.decode import Sampling, Text, stopping
from bytelax.models import kv_cache
from bytelax.targets import module_target
from tests.helpers import decoding as loops
from tests.helpers import setups

GARBAGE = 1e4  # NaN would be an error in itself where a masked value is multiplied by 0


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


@setups.each(slow=["lookup", "early exit", "blt-s", "blt-dv"])
def test_nothing_that_was_not_written_is_read(name, spoilt):
    seed = 2 if name in ("blt-s", "blt-dv") else 0  # for others all that they draft is accepted
    setup, ids = setups.SETUPS[name](), loops.prompts(seed, values=setups.VALUES)
    run = functools.partial(loops.decoded, setup.method(), setup.params, ids=ids)
    before = run()
    spoilt()
    assert before.counts.drafted.sum() > before.counts.accepted.sum() > 0  # it rolled back
    loops.assert_same(run(), before)


@setups.each(slow=["lookup", "blt-s"])
def test_rows_that_have_ended_may_hold_anything(name):
    setup = setups.SETUPS[name]()
    method = setup.method()
    text = Text.of([b"\0\1\2\0\1", b"\0\1\0"], length=64)
    law = Sampling.of(2, allow_eos=False)
    init = jax.jit(functools.partial(method.init, budget=30, sampling=law))
    start = init(setup.params, text)
    start = dataclasses.replace(start, ended=jnp.array([stopping.RUNNING, stopping.BY_LENGTH]))

    def with_nan(x):
        return x.at[1].set(jnp.nan) if jnp.issubdtype(x.dtype, jnp.floating) else x

    nan = dataclasses.replace(start, state=jax.tree.map(with_nan, start.state))
    decode = jax.jit(method.decode)
    found, wanted = decode(setup.params, nan), decode(setup.params, start)
    np.testing.assert_array_equal(found.text.ids[0], wanted.text.ids[0])
    assert found.counts.bytes[0] == 30
