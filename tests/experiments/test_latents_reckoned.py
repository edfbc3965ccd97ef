"""What drafts of the 1B would take, reckoned: exact numbers on toy networks."""

import numpy as np
import pytest

from bytelax.calculator import Sizes
from experiments.compile.rounds import latents, reckoned
from experiments.compile.rounds.latents import Round

READS = 4.3e9  # bytes that an H200 reads a millisecond


@pytest.fixture(name="toy", autouse=True)
def fixture_toy(monkeypatch):
    """Networks so small that reading takes longer than multiplying."""
    cross = {"key_value": np.ones((1, 3)), "key_norm": np.ones(2)}
    params = {
        "decoder": {"split": np.ones((1, 2)), "cross_0": cross},
        "heads": {
            "closes": np.ones((1, 1)),
            "latents": np.ones((2, 5)),
            "ahead_heads_0": np.ones((4, 5)),
        },
    }
    weights = Sizes(decoder=30, encoder=10, global_=80, patcher=20)
    cached = Sizes(decoder=3, encoder=1, global_=8, patcher=2)
    monkeypatch.setattr(reckoned, "networks", lambda: reckoned.Networks(weights, cached, params))


def test_something_happens_in_any_row():
    assert reckoned.in_any_row(1 / 4, 1) == 1 / 4
    assert reckoned.in_any_row(1 / 4, 2) == 7 / 16
    assert latents.renewals(4, 16, 2) == 7
    assert latents.renewals(4, 16, 1) == 4
    assert latents.renewals(3, 2, 1) == 2  # once a step at most


def test_a_round_reads_its_passes():
    """Bytes of the local networks, the entropy model, the global transformer, and the heads."""
    local, patcher, global_ = 2 * (40 + 2 * 4), 4 * (20 + 2 * 2), 2 * (80 + 2 * 8)
    plain = latents.read("ar", 2, Round(1, 0, 0, 1 / 2))
    assert 1e3 * plain == pytest.approx((local + patcher + global_ / 2) / READS)
    stale = latents.read("blt-s 16", 2, Round(5, 16, 0, 1))
    whole = local + patcher + global_
    assert 1e3 * stale == pytest.approx((whole + 16 * local) / READS)
    predicted = latents.read("blt-s 16, predicted", 2, Round(5, 16, 3, 1))
    heads = 16 * 2 * 1 + 3 * 2 * (10 + 2 + 3 + 2)
    assert 1e3 * predicted == pytest.approx((whole + 16 * local + heads) / READS)
    nested = latents.read(latents.NESTED, 2, Round(5, 16, 3, 1))
    assert 1e3 * nested == pytest.approx((whole + 16 * (local + 2 * 20) + heads) / READS)


def test_speeds_beside_plain_decoding(monkeypatch):
    """On a v5e cycles and caches, on an H200 operations and reading, with both assumptions."""
    monkeypatch.setattr(latents, "rounds", lambda method, rows, acceptance: {
        "ar": [Round(1, 0, 0, 1)], latents.NESTED: [Round(4, 5, 2, 1), Round(4, 8, 2, 1)],
    }[method])  # fmt: skip

    def figure(chip, method, rows, times, name):
        return 3e6 * (times["draft"] + 1)

    found = latents.ranges("v5e", 1, latents.NESTED, "T = 1", figure)
    # 2 ms a step; the caches of a few bytes take no time.
    assert found["round"] == pytest.approx([12, 18])
    assert found["byte"] == pytest.approx([3, 4.5])
    assert found["speed"] == pytest.approx([2 / 4.5, 2 / 3])
    monkeypatch.setattr(latents, "read", lambda method, rows, of: 0.0)
    found = latents.ranges("h200", 1, latents.NESTED, "T = 1", figure)
    assert found["round"] == pytest.approx([1.5e3 * 3 * 6, 2.5e3 * 3 * 9])
    assert found["speed"] == pytest.approx([4 / 9, 4 / 6])
