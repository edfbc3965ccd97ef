"""Acceptance by position of the bundled models is that of the committed rows, to two points.

Outputs stay right however badly a drafter drafts, so no other test sees a draft that got worse.
Where a change is meant: `python -m experiments.studies.acceptance`.
"""

import pytest

from experiments import study
from experiments.studies import acceptance

POINTS = 0.02


@pytest.mark.slow
@pytest.mark.parametrize("case", acceptance.CASES, ids=lambda case: f"{case[0]}, {case[1]}")
def test_drafts_are_kept_as_before(case):
    setting = dict(zip(("model", "method", "options"), case, strict=True))
    recorded = study.measured("acceptance", **setting)["acceptance_by_position"]
    found = acceptance.measure(setting)["acceptance_by_position"]
    assert found == pytest.approx(recorded, abs=POINTS)
