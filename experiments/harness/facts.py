"""The facts that a reader of the report needs first, as sentences from files of results."""

import json
import pathlib
import statistics
from collections.abc import Iterator

from experiments.harness import provenance, published_claims
from experiments.harness.study import measured

_DECODE = "accelerator/decode"


def sentences(results: pathlib.Path) -> Iterator[str]:
    """One sentence for each fact, with the page that it rests on; none where nothing is measured.

    Args:
      results: the directory that has a folder for each study.
    """
    on_an_accelerator = results / _DECODE / "results.json"
    if on_an_accelerator.exists():
        yield from _on_an_accelerator(json.loads(on_an_accelerator.read_text()))
    for study, said in _FACTS.items():
        if report := measured(results / study / "results.json"):
            machine = ", ".join(dict.fromkeys(each["machine"] for each in provenance.each(report)))
            yield f"{said(report)} ([{study}]({study}/README.md), {machine})"


def _on_an_accelerator(report):
    """Not all settings need to be measured: time on an accelerator is short."""
    rows = {
        row["setting"]["method"]: row
        for row in report["rows"]
        if {"batch": 1, "context": 512}.items() <= row["setting"].items()
        and row["setting"]["acceptance"] in (None, "published")
        and "failed" not in row
    }
    if plain := rows.pop("plain", None):
        speeds = ", ".join(
            f"{plain['ms_per_byte'] / row['ms_per_byte']:.2f} with `{name}`"
            for name, row in rows.items()
        )
        yield (
            f"**On an accelerator** ({report['device']}), at the shape of the released 1B with "
            f"random weights, one row takes {plain['ms_per_byte']:.2f} ms per byte in plain "
            "decoding, where reading the weights and caches takes "
            f"{plain['floor_ms_per_round']:.2f}. At the acceptance published for the 3B of Fast "
            f"BLT, drafting multiplies the speed by {speeds}. ([{_DECODE}]({_DECODE}/README.md))"
        )


def _beside_transformers(report):
    ratios = [row["ratio"]["median"] for row in report["rows"] if "ratio" in row]
    contexts = [row["setting"]["context"] for row in report["rows"] if "ratio" in row]
    return (
        f"**Plain decoding** of a BLT is {min(ratios):.0f} to {max(ratios):.0f} times as fast as "
        f"in transformers, behind {min(contexts)} to {max(contexts)} bytes of text, and writes the "
        "same bytes."
    )


def _exact(report):
    same = min(row["bitwise_equal_at_the_same_window"] for row in report["rows"])
    alone = min(row["equal_alone"] for row in report["rows"])
    return (
        f"**Lossless methods change no byte**: of each method {same} of {report['prompts']} greedy "
        "outputs equal those of plain decoding in a window of the same size, bytes and "
        f"log-probabilities, bit for bit, and {alone} have the bytes of plain decoding alone."
    )


def _drafting(report):
    said = []
    for temperature in sorted({row["setting"]["temperature"] for row in report["rows"]}):
        speeds = [
            row["decode_speed"]
            for row in report["rows"]
            if row["lossless"] and row["setting"]["temperature"] == temperature
        ]
        gains = sum(speed > 1 for speed in speeds)
        said.append(
            f"at temperature {temperature:g}, {gains} of {len(speeds)} lossless settings are "
            f"faster than plain decoding ({min(speeds):.2f} to {max(speeds):.2f} times as fast, "
            f"median {statistics.median(speeds):.2f})"
        )
    return f"**Drafting** for a byte transformer of 2M, at one row: {'; '.join(said)}."


def _windows(report):
    rows = [row for row in report["rows"] if row["setting"].get("window") == 9]
    prices = [row["ways"]["drafted"]["in_bytes"] for row in rows]
    return (
        f"**A round that drafts eight bytes** with a BLT's decoder and verifies them costs "
        f"{min(prices):.1f} to {max(prices):.1f} plain bytes on this processor: about what it has "
        "to keep to gain."
    )


def _larger_weights(report):
    said = []
    for row in report["rows"]:
        verified = {
            name: found
            for name, found in row["methods"].items()
            if not name.startswith(("plain", "blt-d "))
        }
        name = max(verified, key=lambda name: verified[name]["decode_speed"])
        low, high = verified[name]["decode_speed_range"]
        said.append(
            f"{verified[name]['decode_speed']:.2f} with `{name}` ({low:.2f} to {high:.2f}; "
            f"acceptance {row['setting']['acceptance']})"
        )
    return (
        "**On larger weights some drafts pay**: on a random BLT of 100M, on which acceptance that "
        "was measured elsewhere is replayed, the fastest method that verifies has these multiples "
        f"of the speed of plain decoding: {', '.join(said)}."
    )


def _diffusion(report):
    def ours(method, **options):
        right = published_claims.right_answers(report, method, block_size=4, **options)
        return 100 * right["task-d"]

    plain = 100 * published_claims.right_answers(report)["task-more"]
    return (
        f"**Block diffusion** by a BLT of 1.5M, our loss, in blocks of 4: "
        f"{ours('blt-d', gamma=0.0):.1f} % "
        f"right with one byte per pass and {ours('blt-d', gamma=1.0):.1f} % with entropy up to 1, "
        f"beside {plain:.1f} % of a control in plain decoding; verified (BLT-DV) "
        f"{ours('blt-dv'):.1f} %."
    )


_FACTS = {
    "speed/vs_peers": _beside_transformers,
    "quality/exactness": _exact,
    "speed/self_drafting": _drafting,
    "speed/windows": _windows,
    "speed/wall_clock": _larger_weights,
    "quality/rule_tasks": _diffusion,
}
