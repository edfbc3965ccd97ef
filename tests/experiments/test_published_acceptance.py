"""The range of acceptance that Fast BLT publishes for a setting."""

import pytest

from experiments.harness import published_fast_blt


@pytest.mark.parametrize(
    ("method", "options", "printed"),
    [
        ("blt-s", {"draft_length": 8}, "86 to 96"),
        ("blt-s", {"draft_length": 8, "latent": "refresh"}, "86 to 96"),
        ("blt-dv", {"block_size": 8}, "80 to 94"),
        ("blt-dv", {"block_size": 8, "unmask": "confidence", "alpha": 0.7}, "83 to 95"),
        ("blt-dv", {"block_size": 8, "unmask": "entropy", "gamma": 0.5}, "85 to 96"),
        ("blt-d", {"block_size": 8, "unmask": "one-step"}, None),
        ("blt-s", {"draft_length": 1}, None),
        ("eagle", {"draft_length": 8}, None),
        ("ar", {}, None),
    ],
)
def test_the_range_of_all_tables(method, options, printed):
    assert published_fast_blt.shown(method, options) == printed
