"""Published acceptance stands beside the measured one on the pages of BLTs."""

import pathlib

import pytest

import experiments
from experiments.harness import published_claims, published_fast_blt

ROOT = pathlib.Path(experiments.__file__).parent
PAGES = ("quality/acceptance", "speed/batch", "speed/blt_methods", "speed/draft_rules")


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


@pytest.mark.parametrize("name", PAGES)
def test_pages_have_it(name):
    lines = (ROOT / name / "README.md").read_text().splitlines()
    drafted = [line for line in lines if "blt-s" in line and "86 to 96" in line]
    assert drafted and published_fast_blt.LEGEND in lines


def test_the_score_of_blocks_of_4_is_published_for_translation_and_programs():
    plain = {row.table: row.score for row in published_fast_blt.rows() if row.method == "AR"}
    shares = [
        100 * row.score / plain[row.table]
        for row in published_fast_blt.rows()
        if (row.model, row.method, row.setting) == ("B=4", "BLT-D", "g=1.0")
    ]
    (claim,) = (each for each in published_claims.CLAIMS if "blocks of 4" in each.claim)
    assert claim.published == f"{min(shares):.0f} to {max(shares):.0f} % of its score"
