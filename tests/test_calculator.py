"""The calculator beside the figures of Fast BLT (arXiv 2605.08044, Tables 3 to 10)."""

import math

import pytest

from bytelax import calculator
from bytelax.calculator import Passes, Sizes
from experiments.harness import published_fast_blt
from experiments.studies import accounting

# Least squares on the published gigabytes; a pass of "global" there is one of the encoder too.
ONE_B = Sizes(decoder=160e6, encoder=19e6, global_=1.288e9, patcher=1e8)
ROWS = tuple(published_fast_blt.rows())
PREDICTED = [row for row in ROWS if accounting.of(row)]


@pytest.mark.parametrize("method", ["BLT-S", "BLT-DV"])
def test_passes_as_published_from_acceptance_alone(method):
    """In one step BLT-DV makes as many decoder passes as global ones, and both spread as those."""
    rows = [row for row in PREDICTED if row.method == method]
    assert len(rows) == 24
    for row in rows:
        passes = accounting.of(row)
        within = 0.02 if method == "BLT-S" else 0.06
        assert passes.decoder == pytest.approx(row.decoder, rel=within), row
        assert passes.global_ == pytest.approx(row.global_, rel=0.06), row
        # The paper makes a pass or two more before its first round.
        assert passes.global_ <= row.global_


def test_gigabytes_as_published():
    """From the printed passes and weights."""
    assert len(ROWS) == 223
    off = [row for row in ROWS if abs(accounting.gigabytes(row) / row.gigabytes - 1) > 0.015]
    assert len(off) <= 4
    assert all(row.table.endswith("MBPP") and row.model == "B=16" for row in off)


def test_bandwidth_of_plain_decoding():
    """Table 3: 512 decoder passes, 250 global ones, 814.95 GB."""
    passes = Passes(512, 512, 250, 512)
    found = calculator.bandwidth_gb(passes, ONE_B)
    assert found == pytest.approx(814.95, rel=0.015)
    more = calculator.bandwidth_gb_with_patcher(passes, ONE_B) - found
    assert more == pytest.approx(2 * 512 * 1e8 / 1e9)


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("drafted", [0.02, 0.2, 0.9])
def test_a_plan_for_one_chance_is_the_published_one(chance, drafted):
    """Walltime improvement of Leviathan et al., arXiv 2211.17192, theorem 3.8, at every length."""
    longest = 12
    shares = {"draft-model": [chance**place for place in range(1, longest + 1)]}
    costs = {"draft-model": [drafted * length for length in range(1, longest + 1)]}
    plans = calculator.plan([1.0] * (longest + 1), shares, costs)
    gain = {
        k: (sum(chance**n for n in range(k + 1)) if chance == 1 else
            (1 - chance ** (k + 1)) / (1 - chance)) / (k * drafted + 1)
        for k in range(longest + 1)
    }  # fmt: skip
    assert {plan.draft_length: plan.speed for plan in plans} == pytest.approx(gain)
    assert plans[0].draft_length == max(gain, key=lambda k: (round(gain[k], 12), -k))


def test_a_plan_is_the_best_of_all_settings():
    """Bytes enumerated over where a draft is first refused; made-up costs with steps."""
    windows = [5.0, 5.1, 5.3, 5.2, 7.0, 7.1, 7.2, 7.9, 8.0]
    chances = {"eagle": [0.9, 0.8, 0.8, 0.6, 0.7], "lookup": [0.3, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]}
    drafting = {"eagle": [0.4, 0.8, 1.2, 1.6, 2.0], "lookup": [0.1] * 7}

    def emitted(chances):
        reached = [math.prod(chances[:n]) for n in range(len(chances) + 1)]
        refused = [reached[n] * (1 - chance) for n, chance in enumerate(chances)]
        return sum((n + 1) * p for n, p in enumerate([*refused, reached[-1]]))

    times = {("ar", 0): 5.0} | {
        (method, k): (windows[k] + drafting[method][k - 1]) / emitted(own[:k])
        for method, own in chances.items()
        for k in range(1, len(own) + 1)
    }
    acceptance = {
        method: [math.prod(own[:k]) for k in range(1, len(own) + 1)]
        for method, own in chances.items()
    }
    plans = calculator.plan(windows, acceptance, drafting)
    found = {
        (plan.method, plan.draft_length): plan.round_cost / plan.bytes_per_round for plan in plans
    }
    assert found == pytest.approx(times)
    assert [(plan.method, plan.draft_length) for plan in plans] == sorted(times, key=times.get)
    assert plans[0][:2] == ("eagle", 3)
    for plan in plans:
        assert plan.speed == pytest.approx(5.0 / times[plan.method, plan.draft_length])


def test_plain_decoding_is_the_plan_where_nothing_gains():
    assert calculator.plan([2.0], {}, {}) == [("ar", 0, 1.0, 2.0, 1.0)]
    free_and_refused = calculator.plan([2.0, 2.0], {"lookup": [0.0]}, {"lookup": [0.0]})
    assert [plan.method for plan in free_and_refused] == ["ar", "lookup"]


@pytest.mark.parametrize(
    ("windows", "drafting", "says"),
    [
        ([1.0, 1.0], {"lookup": [0.0, 0.0]}, "costs of 3 windows"),
        ([1.0, 1.0, 1.0], {"lookup": [0.0]}, "got 3 and 1"),
        ([1.0, 1.0, 1.0], {}, "got 3 and 0"),
        ([1.0, 1.0, 1.0], {"lookup": [-1.0, 0.0]}, "costs 0"),
    ],
)
def test_costs_that_make_no_plan(windows, drafting, says):
    with pytest.raises(ValueError, match=says):
        calculator.plan(windows, {"lookup": [0.5, 0.2]}, drafting)
