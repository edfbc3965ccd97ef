"""The threshold of an adaptive stop moves as that of Draft & Verify, by what each row has kept."""

import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.decode import DraftInput, Empty, Sampling, Text, stop_adaptively
from bytelax.decode.drafters import draft_length


def rounds(*seen, threshold=0.8, step=0.01):
    """Threshold and matching rate of one row after (accepted, drafted, whole) of each round."""
    state = jnp.array([threshold]), jnp.zeros(1)
    for accepted, drafted, whole in seen:
        state = draft_length.adapted(
            *state,
            accepted=jnp.array([accepted]),
            drafted=jnp.array([drafted]),
            whole=jnp.array([whole]),
            wanted=0.9,
            step=step,
        )
    return tuple(float(x[0]) for x in state)


ALL, CUT, HALF = (8, 8, True), (3, 3, False), (2, 4, False)


@pytest.mark.parametrize(
    ("seen", "threshold", "matching"),
    [
        ((ALL,), 0.801, 0.5),  # 0.5 * 0 + 0.5 * 8 / 8 is below 0.9: a tenth of 0.01 up
        ((HALF,), 0.801, 0.25),
        ((ALL, CUT, ALL), 0.803, 0.875),
        ((ALL, ALL, ALL, ALL), 0.803, 0.9375),  # no longer below, and the draft was whole
        ((ALL, ALL, ALL, CUT), 0.802, 0.9375),  # it was cut: down
        ((CUT, CUT, CUT, CUT, CUT), 0.801, 0.96875),
        ((ALL, ALL, ALL, CUT, HALF), 0.803, 0.71875),
    ],
)
def test_the_published_rule(seen, threshold, matching):
    np.testing.assert_allclose(rounds(*seen), (threshold, matching), atol=1e-6)


def test_the_threshold_stays_a_probability():
    assert rounds(HALF, HALF, threshold=0.95, step=1.0)[0] == 1
    assert rounds(CUT, CUT, CUT, CUT, threshold=0.0, step=0.0)[0] == 0
    assert rounds(CUT, CUT, CUT, CUT, CUT, threshold=0.0, step=1.0)[0] == pytest.approx(0.1)


def test_rows_learn_from_their_own_drafts_alone():
    """Three bytes a row were offered, or cut to one; what was kept counts one of the target's."""
    drafter = stop_adaptively(Empty(3), 0.5)
    text = Text(jnp.zeros((5, 4), jnp.int32), jnp.ones(5, jnp.int32))
    inputs = DraftInput((), None, (), (), text, Sampling.of(5), None)
    begin = drafter.init(inputs)
    offered = draft_length.AdaptiveState(
        drafter=(),
        threshold=begin.threshold,
        matching=jnp.full(5, 0.9),
        drafted=jnp.array([3, 3, 1, 3, 0]),
        whole=jnp.array([True, True, False, True, True]),
    )
    after = drafter.commit(inputs, offered, (), jnp.array([4, 2, 2, 0, 1]))
    np.testing.assert_allclose(after.matching, [0.95, 0.45 + 1 / 6, 0.95, 0.9, 0.9], atol=1e-6)
    np.testing.assert_allclose(after.threshold, [0.5, 0.501, 0.499, 0.5, 0.5], atol=1e-6)
    # Nothing was proposed since: another's bytes were judged.
    again = drafter.commit(inputs, after, (), jnp.full(5, 2))
    np.testing.assert_array_equal(again.threshold, after.threshold)
