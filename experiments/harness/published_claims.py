"""What the published work claims, its figures, and ours beside them: the first table of the report.

A row that cannot be filled says what is missing. A verdict is computed from the results, so that it
changes with them.
"""

import pathlib
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

from experiments.harness.study import measured

COLUMNS = ("source", "claim", "published", "ours", "holds here", "why, or where")
BYTES, FAST_BLT = "Veritate, 85M", "Fast BLT, 1B and 3B"
SPECULATIVE = "speculative decoding"
SOURCES = """\
[Veritate](https://carpathian.ai/publications/speculative-decoding) is a byte transformer, and
[Fast BLT](https://arxiv.org/abs/2605.08044) speeds up the Byte Latent Transformer. Of speculative
decoding these are [draft models](https://arxiv.org/abs/2211.17192),
[skipped layers](https://arxiv.org/abs/2309.08168) and [SpecTr](https://arxiv.org/abs/2310.15141)."""


class Claim(NamedTuple):
    """A claim of the published work.

    Attributes:
      source: who makes it.
      claim: in a few words.
      published: its figure.
      study: the study that measures ours, with the stem of its file if that is not the main one.
      ours: from the study's report to our figure, and whether the claim holds.
      why: what a reader has to know beside the verdict.
    """

    source: str
    claim: str
    published: str
    study: str
    ours: Callable[[dict], tuple[str, bool]]
    why: str


def rows(results: pathlib.Path) -> Iterator[tuple]:
    """Rows of the table.

    Args:
      results: the directory that has a folder for each study.
    """
    for each in CLAIMS:
        folder, _, stem = each.study.partition(", ")
        if report := measured(results / folder / f"{stem or 'results'}.json"):
            ours, holds = each.ours(report)
            verdict = "yes" if holds else "**no**"
        else:
            ours, verdict = "not measured", ""
        page = f"{folder}/{f'{stem}.md' if stem else 'README.md'}"
        where = f"{each.why} [{folder}]({page})".strip()
        yield each.source, each.claim, each.published, ours, verdict, where


def _found(report: dict, **setting) -> dict:
    """The first row whose setting has all of these options."""
    return next(row for row in report["rows"] if setting.items() <= row["setting"].items())


def _both(report: dict, name: str, **setting) -> list[float]:
    """A figure of a setting at temperatures 0 and 1; at 0 without loops where that is known."""
    own = []
    for temperature in (0.0, 1.0):
        row = _found(report, temperature=temperature, **setting)
        figure = row.get(f"{name}_without_loops") or row[name]
        own.append(figure["value"] if isinstance(figure, dict) else figure)
    return own


def _kept(least: float, **setting) -> Callable[[dict], tuple[str, bool]]:
    """Acceptance of a setting; the claim holds where either temperature reaches `least`."""

    def ours(report):
        greedy, sampled = _both(report, "acceptance", **setting)
        said = f"{100 * greedy:.0f} and {100 * sampled:.0f} % at T = 0 and 1"
        return said, max(greedy, sampled) >= least

    return ours


def _speed(least: float, **setting) -> Callable[[dict], tuple[str, bool]]:
    """Speed beside plain decoding; the claim holds where either temperature reaches `least`."""

    def ours(report):
        found = [
            row["decode_speed"]
            for row in report["rows"]
            if setting.items() <= row["setting"].items()
        ]
        return f"{min(found):.2f} to {max(found):.2f} times", max(found) >= least

    return ours


def _agreement(report):
    (row,) = report["rows"]
    all_, six = row["all"]["unanimous"], row["all"]["at_least_6"]
    return f"{100 * all_:.1f} and {100 * six:.1f} %", all_ >= 0.5 and six >= 0.7


def _certain(report):
    (row,) = report["rows"]
    mean = row["bands"][0]["mean"]
    return f"{mean:.2f} of 8", mean >= 7.8


def _falls(report):
    (row,) = report["rows"]
    greedy = [band["greedy"] for band in row["bands"]]
    said = ", ".join(f"{100 * each:.0f}" for each in greedy)
    return f"{said} % over five bands of entropy", greedy == sorted(greedy, reverse=True)


def _window(report):
    seconds = _found(report, model="85M")["seconds"]["whole"]
    times = 16 * seconds["1"] / seconds["16"]
    return f"{times:.1f} times", times >= 4.69


def _eagle(report):
    kept = max(
        row["kept_per_round_without_loops"]["value"]
        for row in report["rows"]
        if row["setting"]["method"] == "eagle" and row["setting"]["draft_length"] == 12
    )
    return f"at most {kept:.1f} of 12", kept >= 6


def _accounting(report):
    errors = [abs(error) for row in report["rows"] for error in row["gigabytes"]]
    close = sum(error <= 0.015 for error in errors)
    return f"{close} of {len(errors)} rows within 1.5 %", close > 0.95 * len(errors)


def _weights(report):
    plain = _found(report, model="tiny", method="ar", temperature=1.0)["gb_per_byte"]["value"]
    own = [
        row["gb_per_byte"]["value"] / plain
        for row in report["rows"]
        if {"method": "blt-s", "temperature": 1.0}.items() <= row["setting"].items()
        and "draft_with" not in row["setting"]
    ]
    return f"{min(own):.2f} of plain decoding's at best, T = 1", min(own) <= 0.5


def _fastest(report):
    own = {
        unmask: _both(report, "decode_speed", method="blt-dv", block_size=8, unmask=unmask)
        for unmask in ("one-step", "confidence")
    }
    said = ", ".join(f"{name} {max(each):.2f}" for name, each in own.items())
    return said, own["one-step"] > own["confidence"]


def _diffusion(report):
    plain = right_answers(report)["task-more"]
    own = right_answers(report, method="blt-d", block_size=4, gamma=1.0)["task-d"]
    said = f"{100 * own / plain:.0f} % of it: {100 * own:.1f} % right, plain decoding "
    return f"{said}{100 * plain:.1f} %", own >= 0.81 * plain


def right_answers(report: dict, method: str = "ar", **options) -> dict[str, float]:
    """The share of right answers by model, as a mean over seeds."""
    setting = {"method": method, **options}
    found: dict[str, list[float]] = {}
    for row in report["rows"]:
        if setting.items() <= row["setting"].items():
            found.setdefault(row["setting"]["model"], []).append(row["exact_match"]["value"])
    return {model: statistics.mean(shares) for model, shares in found.items()}


def _restored(report):
    rows = [row for row in report["rows"] if row["setting"]["method"] == "blt-dv"]
    models = [{name: row["setting"][name] for name in ("model", "seed")} for row in rows]
    same = sum(
        row["exact_match"]["value"] == _found(report, **model, method="ar")["exact_match"]["value"]
        for row, model in zip(rows, models, strict=True)
    )
    return f"as plain decoding of the same weights in {same} of {len(rows)}", same == len(rows)


def _exact(report):
    alone = [row["equal_alone"] for row in report["rows"]]
    same = [row["bitwise_equal_at_the_same_window"] for row in report["rows"]]
    prompts = report["prompts"]
    return (
        f"{min(same)} of {prompts} bit for bit at one window, {min(alone)} beside W = 1",
        min(same) == prompts,
    )


CLAIMS = (
    Claim(BYTES, "eight samples agree; six of eight do", "56 and 74 %", "quality/agreement",
          _agreement, "A model of 2M at 1.8 bits per byte."),
    Claim(BYTES, "below half a bit they agree", "7.95 of 8", "quality/agreement", _certain, ""),
    Claim(BYTES, "a draft is accepted where the model is sure", "premise", "quality/agreement",
          _falls, "Greedy acceptance of `tiny-draft`."),
    Claim(BYTES, "exit at half the depth, with an exit head", "48 to 85 %", "speed/self_drafting",
          _kept(0.8, method="early-exit", exit_layer=6, draft_length=1),
          "The head saw 4.1 MB."),
    Claim(BYTES, "early exit is faster", "1.27 to 1.74 times, projected", "speed/self_drafting",
          _speed(1.27, method="early-exit"), "The projection leaves verification out."),
    Claim(BYTES, "a two-byte head", "75 %", "speed/self_drafting",
          _kept(0.7, method="two-byte", state_layer=12), ""),
    Claim(BYTES, "exit and two-byte head together", "2.25 times, projected", "speed/self_drafting",
          _speed(2.0, method="composed"), ""),
    Claim(BYTES, "verifying 16 bytes in one pass", "4.69 times", "speed/self_drafting, windows",
          _window, "At the published shape, random weights, beside 16 passes. "
          "Other processors: see its page."),
    Claim(BYTES, "an EAGLE layer keeps six bytes a round", "goal", "training/draft_curve", _eagle,
          "The goal is missed, after 30 MB of text, too."),
    Claim(FAST_BLT, "passes and gigabytes of its tables", "Tables 3 to 10", "speed/accounting",
          _accounting, "Computed, nothing runs."),
    Claim(FAST_BLT, "BLT-S with 8 bytes is accepted", "86 to 96 %", "speed/blt_methods",
          _kept(0.86, model="tiny", method="blt-s", draft_length=8),
          "A model of 9M."),
    Claim(FAST_BLT, "BLT-S reads half of the weights or less", "23 to 50 %", "speed/blt_methods",
          _weights, "With the entropy model. Nested drafts and predicted latents save more: "
          "[speed/latents](speed/latents/README.md)."),
    Claim(FAST_BLT, "BLT-DV with blocks of 8 is accepted", "80 to 94 %", "speed/blt_methods",
          _kept(0.8, model="tiny-d", method="blt-dv", block_size=8, unmask="one-step"), ""),
    Claim(FAST_BLT, "one step is the fastest BLT-DV", "yes", "speed/blt_methods", _fastest, ""),
    Claim(FAST_BLT, "BLT-D with blocks of 4 is nearly BLT", "81 to 94 % of its score",
          "quality/rule_tasks", _diffusion, "Trained on for 16.4 MB, as the control was "
          "plainly; our loss, entropy up to 1, as published."),
    Claim(FAST_BLT, "BLT-DV restores the quality", "yes", "quality/rule_tasks", _restored, ""),
    Claim(FAST_BLT, "greedy output is plain decoding's", "yes", "quality/exactness", _exact, ""),
    Claim(SPECULATIVE, "a draft model", "2 to 3.6 times", "speed/self_drafting",
          _speed(2.0, method="draft-model"), ""),
    Claim(SPECULATIVE, "skipping layers", "up to 1.99 times", "speed/self_drafting",
          _speed(1.5, method="layer-skip"), ""),
    Claim(SPECULATIVE, "SpecTr", "2.13 times", "speed/self_drafting",
          _speed(2.0, method="spectr"), "A wider window costs, on a processor."),
)  # fmt: skip
