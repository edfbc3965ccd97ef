"""Where each output byte came from."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax.decode import Draft, Emitted, Method, Origin, record
from bytelax.systems import LookupDrafter
from tests.helpers import models_for_tests as models

NEW = 24
PROMPTS = [b"to be or not to be or ", b"\x00\x01\x02\x03\x00\x01", b"abcabcabcabc"]


def test_codes_of_a_round():
    """Nothing drafted; refused at once; refused later; accepted whole; a short draft whole."""
    length, drafted = jnp.array([0, 3, 3, 3, 2]), jnp.array([0, 0, 2, 3, 2])
    draft = Draft(ids=jnp.full((5, 3), 9), length=length)
    emitted = Emitted(jnp.full((5, 4), 9), drafted + 1, drafted)
    found, drafted = jax.device_get((jax.jit(record.origins_of)(draft, emitted), drafted))
    names = [
        ["plain"],
        ["corrected"],
        ["drafted", "drafted", "corrected"],
        ["drafted", "drafted", "drafted", "free"],
        ["drafted", "drafted", "free"],
    ]
    for row, count in enumerate(drafted + 1):
        assert found[row, :count].names == names[row]


@functools.cache
def generated(which, method="lookup", stop=b"\xff\xff\xff"):
    alike = models.replace(models.BYTE_LM, trunk={"layers": 1})  # to a chain, and its program
    model = models.model(alike) if which == "random" else models.chain(which)
    if method == "lookup":
        method = Method(model.target(), LookupDrafter(3, shortest=2))
    return bytelax.generate(
        model, PROMPTS, method=method, max_new_bytes=NEW, allow_eos=False, origins=True, stop=[stop]
    )


@pytest.mark.parametrize("which", ["random", b"abc"])
def test_they_add_up(which):
    seen = set()
    for result in generated(which).results:
        kinds = result.origins.kind
        assert kinds.shape == (len(result.bytes),) == (NEW,)
        assert (kinds == Origin.DRAFTED).sum() == result.stats.accepted
        own = np.isin(kinds, [Origin.PLAIN, Origin.CORRECTED, Origin.FREE]).sum()
        assert own == NEW - result.stats.accepted
        # One a round; the budget may have cut off the last.
        assert result.stats.rounds - own in (0, 1)
        seen |= set(result.origins.names)
    assert "prompt" not in seen
    assert "corrected" in seen if which == "random" else {"drafted", "free"} <= seen


def test_nothing_is_drafted_in_plain_decoding():
    for result in generated(b"abc", "ar").results:
        assert result.origins.names == ["plain"] * NEW


def test_they_end_where_the_bytes_end():
    result = generated(b"abc", stop=b"bca").results[2]
    assert result.bytes == b"a" and result.origins.names == ["drafted"]
