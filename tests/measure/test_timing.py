"""Methods in turns: what is summed over batches, and what a ratio is made of."""

import pytest

from bytelax.decode import Method
from bytelax.measure import timing
from bytelax.measure.timing import PLAIN, Contestant, Ratio
from bytelax.systems import LookupDrafter
from tests.helpers import models_for_tests as models


@pytest.mark.slow
def test_batches_add_up():
    """Three prompts in batches of two and one."""
    prompts = [b"again and again and ", b"again and again ", b"on and on and on and on"]
    model = models.model(models.BYTE_LM)
    lookup = Contestant(Method(model.target(), LookupDrafter(3, shortest=1)), {})
    plain, own = timing.in_turns(model, prompts, [PLAIN, lookup], new=8, repeats=2, batch=2)
    assert len(plain.outputs) == 2 and len(plain.seconds) == len(plain.decode_seconds) == 2
    assert plain.texts == own.texts and len(plain.texts) == 3
    assert (plain.stats.bytes, plain.stats.rounds, plain.stats.batch_windows) == (24, 24, 16)
    rows = [result.stats.rounds for output in own.outputs for result in output.results]
    assert own.stats.batch_windows == max(rows[:2]) + rows[2] < own.stats.rounds
    timed = timing.compare(plain, own)
    assert (timed.rows, timed.same_outputs, timed.lossless) == (3, 3, True)
    assert 0 < timed.decode_seconds < timed.seconds


def test_a_ratio_is_of_neighbours():
    assert Ratio.of([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == pytest.approx((2.0, 1.0, 3.0))
