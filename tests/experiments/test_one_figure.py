"""One setting has one figure on all pages that were measured with the same code and weights."""

import collections
import json

import pytest

from experiments.harness import discovery, one_figure
from experiments.harness.one_figure import Setting, Timed
from experiments.speed.batch import run as batch
from experiments.speed.blt_methods import run as blt_methods
from experiments.speed.draft_rules import run as draft_rules
from experiments.speed.self_drafting import run as self_drafting

BLT_S = Setting.of("tiny", "blt-s", {"draft_length": 8}, 0.0)


def measured_together():
    """Speeds of all pages, by the code, options and processor that they were measured with."""
    found = collections.defaultdict(list)
    for study in discovery.studies():
        for name in study.results:
            path = study.folder / f"{name}.json"
            report = json.loads(path.read_text()) if path.exists() else {}
            if "ran" in report:  # what is older says so on its page
                with_ = {name: report["ran"][name] for name in ("code", "options")}
                found[json.dumps([with_, report["machine"]])] += study.speeds(report)
    return found


def test_one_setting_has_one_figure():
    for together in measured_together().values():
        assert not one_figure.disagreeing(together)


def speed(value, low, high):
    return {"decode_speed": value, "decode_speed_range": [low, high]}


# As four pages had it in November 2026, of programs with and without YNNPACK.
PAGES = {
    blt_methods: {
        "rows": [
            {
                "setting": {
                    "model": "tiny", "method": "blt-s", "temperature": 0.0, "draft_length": 8,
                },
                **speed(0.84, 0.84, 0.89),
            }
        ]
    },
    batch: {
        "rows": [
            {
                "setting": {"model": "tiny", "temperature": 0.0, "batch": 1},
                "best_plain": "plain",
                "methods": {"plain": speed(1, 1, 1), "blt-s 8": speed(0.67, 0.66, 0.69)},
            }
        ]
    },
    draft_rules: {
        "rows": [
            {
                "setting": {"drafter": "blt-s of tiny", "temperature": 0.0, "rule": "none"},
                **speed(0.82, 0.80, 0.83),
            }
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize("study", PAGES, ids=lambda study: study.__name__.split(".")[-2])
def test_every_study_names_a_setting_alike(study):
    (found,) = study.speeds(PAGES[study])
    assert found.setting == BLT_S


def test_pages_that_differ_are_seen():
    found = [each for study, report in PAGES.items() for each in study.speeds(report)]
    assert [*one_figure.disagreeing(found)] == [BLT_S]
    alike = [each for each in found if each.speed > 0.8]
    assert len(alike) == 2 and not one_figure.disagreeing(alike)


def test_other_settings_are_not_compared():
    """Another temperature, batch, length or rule is another setting."""
    slow = Timed(BLT_S, 0.5, 0.5, 0.5)
    for more in ({"draft_length": 16}, {"draft_length": 8, "latent": "refresh"}):
        assert not one_figure.disagreeing(
            [slow, Timed(Setting.of("tiny", "blt-s", more, 0.0), 1, 1, 1)]
        )
    for temperature, rows in ((1.0, 1), (0.0, 16)):
        other = Setting.of("tiny", "blt-s", {"draft_length": 8}, temperature, rows)
        assert not one_figure.disagreeing([slow, Timed(other, 1, 1, 1)])
    typical = {"drafter": "blt-s of tiny", "temperature": 1.0, "rule": draft_rules.TYPICAL}
    assert not [*draft_rules.speeds({"rows": [{"setting": typical, **speed(1, 1, 1)}]})]


def test_a_model_that_a_report_names_once():
    row = {"setting": {"method": "medusa", "temperature": 0.0}, **speed(1.44, 1.27, 1.5)}
    (found,) = self_drafting.speeds({"model": "tiny-lm", "rows": [row]})
    assert found == (Setting.of("tiny-lm", "medusa", {}, 0.0), 1.44, 1.27, 1.5)
