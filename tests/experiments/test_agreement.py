"""The chances of agreement that `studies/agreement.py` computes."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.studies import agreement


def enumerated(law, draws):
    """Chance that the commonest of `draws` samples comes 1..draws times, sample by sample."""
    chances = np.zeros(draws)
    for drawn in itertools.product(range(len(law)), repeat=draws):
        chances[np.bincount(drawn).max() - 1] += np.prod(law[list(drawn)])
    return chances


@pytest.mark.parametrize("draws", [2, 6])
def test_the_chances_of_agreement(draws):
    laws = np.array([[0.5, 0.3, 0.2], [0.98, 0.02, 0.0], [1.0, 0.0, 0.0]], np.float32)
    found = agreement.agreement_law(jnp.asarray(laws), draws=draws)
    expected = [enumerated(law.astype(np.float64), draws) for law in laws]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_known_shares():
    """Unanimous: sum p^8. Two bytes alike, of 260: at least 6 of 8 is 2 * (28 + 8 + 1) / 2^8."""
    law = jnp.zeros((1, 260)).at[0, jnp.array([7, 99])].set(0.5)
    found = np.asarray(agreement.agreement_law(law, draws=8))[0]
    assert found[-1] == pytest.approx(2 / 2**8, abs=1e-6)
    assert found[5:].sum() == pytest.approx(2 * 37 / 2**8, abs=1e-6)
