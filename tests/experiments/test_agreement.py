"""The study of agreement: its computed chances are right, and it runs on a tiny model."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.quality.agreement import run as agreement
from tests.helpers import models_for_tests as models


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


@pytest.mark.exhaustive
def test_the_study_runs_and_samples_bear_the_computed_figures_out():
    small = models.model(models.BYTE_LM)
    rng = np.random.default_rng(0)
    texts = {name: rng.integers(32, 127, 2000, np.uint8).tobytes() for name in ("one", "two")}
    report = agreement.measure(small, small, texts, count=1000, new=2, prompts=4)
    assert report["positions"] == 2 * 2 * (agreement.WINDOW - agreement.CONTEXT + 1)
    computed, drawn = report["all"], report["all"]["sampled"]
    assert drawn["mean"] == pytest.approx(computed["mean"], abs=0.2)
    assert drawn["at_least_6"] == pytest.approx(computed["at_least_6"], abs=0.06)
    assert sum(row["share"] for row in report["bands"]) == pytest.approx(1)
    assert [row["bytes"] for row in report["continuations"]["rows"]] == [1, 2]
    assert report["all"]["overlap"] == pytest.approx(1, abs=1e-5)  # of a model with itself
    assert report["all"]["greedy"] == 1
    row = {"setting": {"model": "random", "draft_model": "itself"}, **report}
    table = agreement.markdown({"parameters": 1, "rows": [row]})
    assert "56.2" in table and "7.95" in table


def test_the_overlap_hides_what_greedy_drafts_meet():
    """Certain positions, where both models agree; flat ones, whose likeliest bytes differ."""
    sure, flat = np.eye(8)[0], np.full(8, 1 / 8)
    one, other = flat + 0.01 * np.eye(8)[1], flat + 0.01 * np.eye(8)[2]
    own = np.stack([sure, sure, one / one.sum(), one / one.sum()])
    drafted = np.stack([sure, sure, other / other.sum(), other / other.sum()])
    law = np.asarray(agreement.agreement_law(jnp.asarray(own), draws=8))
    overlap = np.minimum(own, drafted).sum(-1)
    greedy = own.argmax(-1) == drafted.argmax(-1)
    rows = agreement.by_band(np.array([0.0, 0, 3, 3]), law, np.full(4, 8), overlap, greedy)
    certain, uncertain = (row for row in rows if row["share"])
    assert certain["greedy"] == 1 and uncertain["greedy"] == 0
    assert uncertain["overlap"] > 0.98
    assert agreement.correlations(law, None, overlap, greedy)["greedy"] == pytest.approx(1)
