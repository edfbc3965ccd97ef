"""Where each output byte came from."""

import jax
import jax.numpy as jnp

import bytelax
from bytelax.decode import Draft, Emitted, Method, record
from bytelax.systems import LookupDrafter
from tests.helpers import models_for_tests as models

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


def test_of_a_model_that_writes_abc_over_and_over():
    """The first copies are wrong; later ones are right, once two bytes stand there twice."""
    chain = models.chain(b"abc")
    lookup = Method(chain.target(), LookupDrafter(3, shortest=2))

    def written(method, stop=b"\xff\xff\xff"):
        out = bytelax.generate(
            chain, PROMPTS, method=method, max_new_bytes=24, allow_eos=False, origins=True,
            stop=[stop],
        )  # fmt: skip
        return [result.origins.names for result in out.results]

    right = ["drafted", "drafted", "drafted", "free"] * 6
    wrong = ["corrected", "plain", "plain", "plain", "plain", *right[:19]]
    assert written(lookup) == [wrong, wrong, right]
    assert written("ar") == [["plain"] * 24] * 3
    assert written(lookup, stop=b"bca")[2] == ["drafted"]  # they end where the bytes end
