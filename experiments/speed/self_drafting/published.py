"""What was published of byte transformers that draft for themselves, held against the rows."""

from bytelax import calculator
from experiments.harness import intervals, roofline, study

# Method, a part of its options, and the figure: the first that fits a setting is its own.
FIGURES = (
    ("early-exit", {"exit_layer": 6, "exit_head": False}, "42 %, 1.27x"),
    ("early-exit", {"exit_layer": 6}, "48 to 85 %, 1.74x"),
    ("two-byte", {"state_layer": 12}, "75 %"),
    ("two-byte", {"state_layer": 6}, "58 %"),
    ("composed", {}, "2.25x"),
    ("layer-skip", {}, "up to 1.99x (LLaMA-2)"),
    ("eagle", {}, "open"),
    ("spectr", {}, "2.13x"),
)
PROJECTED = ((0.42, 1.27), (0.85, 1.74))  # acceptance of an exit at half the depth, and its speed
LEAST_KEPT = 6  # bytes per round; a draft layer that keeps fewer was to be given up


def figure(method, options):
    """What was published of a setting; None if nothing was."""
    return next(
        (said for own, part, said in FIGURES
         if own == method and part.items() <= options.items()), None,
    )  # fmt: skip


def falsifier(report):
    """Lines on the goal that was set for a draft layer before there was one, and its verdict."""
    rows = [
        row
        for row in report["rows"]
        if row["setting"]["method"] == "eagle"
        and row["setting"]["draft_length"] > LEAST_KEPT
        and "beam" not in row["setting"]
    ]
    lines = [
        "## The falsifier of the draft layer",
        "",
        f"Set beforehand: a draft layer (`eagle`) that keeps fewer than {LEAST_KEPT} drafted bytes "
        "a round misses its goal. The end of a text cuts its last round short.",
    ]
    if not rows:
        return [*lines, "", "Not measured: no draft was long enough."]
    natural = [row["kept_per_round_without_loops"] for row in rows]
    said = verdict([each for each in natural if each is not None])
    table = study.table(
        ("draft length", "T", "kept per round", "without loops", "loops"),
        [
            (
                row["setting"]["draft_length"],
                f"{row['setting']['temperature']:g}",
                intervals.shown(row["kept_per_round"]),
                intervals.shown(row["kept_per_round_without_loops"]),
                f"{row['loops']}/{report['prompts']}",
            )
            for row in rows
        ],
    )
    return [*lines, "", *table, "", said]


def verdict(kept):
    """A sentence on figures with intervals: does any reach the goal?"""
    if all(figure["interval"][1] < LEAST_KEPT for figure in kept):
        return (
            f"**The falsifier fires**: on text that does not loop every interval ends below "
            f"{LEAST_KEPT}."
        )
    if any(figure["interval"][0] >= LEAST_KEPT for figure in kept):
        return (
            f"The falsifier does not fire: on text that does not loop an interval begins at "
            f"{LEAST_KEPT} or above."
        )
    return f"The falsifier is undecided: intervals on text that does not loop hold {LEAST_KEPT}."


def projections(layers):
    """Lines that compute the published projections of early exit again, by what passes cost."""
    rows = []
    for chance, printed in PROJECTED:
        speed, length = best(chance, layers)
        rows.append(
            (
                f"{100 * chance:.0f} %",
                f"{printed:.2f}x",
                f"{1 / (1 - chance / 2):.2f}x",
                f"{speed:.2f}x",
                length,
            )
        )
    return [
        "## The published projections of early exit",
        "",
        "Both printed speeds are 1 / (1 - a / 2) to the digit: half a model drafts every byte, a "
        "share a of the bytes ends there, and verifying costs nothing. That this is the formula is "
        "an inference. By the costs of [the calculator](../../../docs/calculator.md), where all "
        "layers verify, continuing from the exit's states, with the best draft length:",
        "",
        *study.table(
            ("accepted", "printed", "1 / (1 - a / 2)", "with verification", "draft length"), rows
        ),
    ]


def best(chance, layers, most=16):
    """The highest speed of an exit at half the depth, and the draft length that has it."""
    return max(
        (
            calculator.bytes_per_round_at(chance, length)
            / sum(roofline.layer_shares(layers, {}, "early-exit", length)),
            length,
        )
        for length in range(1, most + 1)
    )
