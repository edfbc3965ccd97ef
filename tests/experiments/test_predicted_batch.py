"""The prediction for batches: its pieces by hand, and the shape of its curve."""

import pytest

from experiments.speed.batch import predicted


def test_the_longest_of_several_patches():
    """One patch: the mean. Two: 2 * 4 less the mean of the shorter, 1 / (1 - 0.75^2)."""
    assert predicted.longest(1) == pytest.approx(4, rel=1e-6)
    assert predicted.longest(2) == pytest.approx(8 - 1 / (1 - 0.75**2), rel=1e-6)


@pytest.mark.slow
def test_the_gain_rises_with_the_batch_and_is_still_there_at_64():
    for name, (alone, _, at_8, at_64) in predicted.speeds((1, 2, 8, 64)).items():
        assert 1.5 < alone < at_8 and at_8 > at_64 > 2, name


def test_published_rates():
    assert predicted.rate("blt-s 8") == pytest.approx(0.8716)
    assert predicted.rate("blt-dv 16, one step") == pytest.approx(0.6033)
