"""The ranges of acceptance and of weights read that Fast BLT publishes for a setting."""

import pytest

from experiments.harness import published_fast_blt


@pytest.mark.parametrize(
    ("method", "options", "acceptance", "weights"),
    [
        ("blt-s", {"draft_length": 8}, "86 to 96", "0.32 to 0.67"),
        ("blt-s", {"draft_length": 8, "latent": "refresh"}, "86 to 96", "0.32 to 0.67"),
        ("blt-dv", {"block_size": 8}, "80 to 94", "0.28 to 0.50"),
        (
            "blt-dv", {"block_size": 8, "unmask": "confidence", "alpha": 0.3},
            "83 to 95", "0.28 to 0.50",
        ),
        ("blt-dv", {"block_size": 8, "unmask": "confidence", "alpha": 0.7}, None, None),
        (
            "blt-dv", {"block_size": 8, "unmask": "entropy", "gamma": 2.0},
            "85 to 96", "0.28 to 0.52",
        ),
        ("blt-d", {"block_size": 8, "unmask": "entropy", "gamma": 1.0}, None, "0.15 to 0.30"),
        ("blt-d", {"block_size": 8, "unmask": "one-step"}, None, None),
        ("blt-s", {"draft_length": 1}, None, None),
        ("eagle", {"draft_length": 8}, None, None),
        ("ar", {}, None, None),
    ],
)  # fmt: skip
def test_the_ranges_of_all_tables(method, options, acceptance, weights):
    assert published_fast_blt.shown(method, options) == {
        "published_acceptance": acceptance, "published_weights": weights,
    }  # fmt: skip


def test_every_published_rule_is_an_option_of_its_rows():
    """All rows of a table are reached, each by one rule; Table 10 lacks one of BLT-DV."""
    for method, count in (("blt-d", 4), ("blt-dv", 4)):
        rules = published_fast_blt.rules(method)
        assert len(rules) == count
        for rule in rules:
            shown = published_fast_blt.shown(method, {"block_size": 16} | rule)
            assert shown["published_weights"]
