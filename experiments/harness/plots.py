"""How the figures of the studies look, and what more than one of them draws."""

import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {
    "svg.hashsalt": "bytelax", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "figure.constrained_layout.use": True,
}  # fmt: skip

from matplotlib import pyplot as plt  # noqa: E402 (after the settings that it reads)
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from experiments.harness.trained import BLOCK_SIZES  # noqa: E402

COSTS = {"decoder_passes": "decoder passes", "bandwidth_gb_with_patcher": "weights read"}
_MARKERS = {"ar": "s", "blt-s": "^", "blt-d": "o", "blt-dv": "*"}


def save(figure: Figure, path: pathlib.Path) -> None:
    """Writes a figure, always the same bytes of the same figure, and closes it."""
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def name_lines(panel: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Writes the names of lines to the right of a panel, close to where they end.

    Args:
      panel: with its final limits in y.
      ends: x and y of the end of each line, its name and its colour.
    """
    low, high = panel.get_ylim()
    ends = sorted(ends, key=lambda end: end[1])
    heights = apart([(y - low) / (high - low) for _, y, _, _ in ends], 0.085)
    for (x, y, name, colour), height in zip(ends, heights, strict=True):
        panel.annotate(
            name, (x, y), xytext=(1.06, height), textcoords="axes fraction", color=colour,
            fontsize=8, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkB": 3},
        )  # fmt: skip


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """The closest heights to ascending ones of which each two are at least `gap` apart."""
    blocks: list[tuple[float, int]] = []  # means and sizes of runs that touch, without their gaps
    for index, height in enumerate(heights):
        mean, size = height - index * gap, 1
        while blocks and blocks[-1][0] > mean:
            before, more = blocks.pop()
            mean, size = (before * more + mean * size) / (more + size), more + size
        blocks.append((mean, size))
    level = [mean for mean, size in blocks for _ in range(size)]
    return [mean + index * gap for index, mean in enumerate(level)]


class Points(NamedTuple):
    """The settings of one model and one method.

    Attributes:
      label: of the model.
      method: which decides the marker.
      costs: of each setting, relative to plain decoding of the control, by the names in `COSTS`.
      heights: of each setting.
      errors: how far the interval of each reaches below and above.
    """

    label: str
    method: str
    costs: Sequence[dict[str, float]]
    heights: Sequence[float]
    errors: tuple[Sequence[float], Sequence[float]] | None = None


def by_cost(
    points: Callable[[int], Iterable[Points]], labels: Iterable[str], ylabel: str, top: float | None
) -> Figure:
    """Heights against each of `COSTS`, with a column of panels for each block size.

    Args:
      points: what is drawn for a block size.
      labels: of all models, in the order of their colours.
      ylabel: what the heights are.
      top: the largest possible height; None if there is none.
    """
    colours = {label: f"C{place}" for place, label in enumerate(labels)}
    figure, panels = plt.subplots(
        len(COSTS), len(BLOCK_SIZES), figsize=(7.5, 5), sharex="row", sharey=True
    )
    for line, (name, cost) in zip(panels, COSTS.items(), strict=True):
        for panel, size in zip(line, BLOCK_SIZES, strict=True):
            for own in points(size):
                panel.errorbar(
                    [each[name] for each in own.costs], own.heights, yerr=own.errors,
                    fmt=_MARKERS[own.method], markersize=5, elinewidth=0.8,
                    color=colours[own.label], label=f"{own.label}, {own.method}",
                )  # fmt: skip
            panel.set_title(f"blocks of {size}")
        line[0].set(ylabel=ylabel, xlim=(0, None), ylim=(0, top))
        line[1].set_xlabel(f"{cost}, beside plain decoding of the control")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), fontsize=8, ncols=2, loc="outside lower center"
    )
    return figure


def settings(report: dict) -> Figure:
    """Speed of every setting but plain decoding, with its range."""
    rows = [row for row in report["rows"] if row["setting"]["method"] != "ar"]
    names = [
        ", ".join([row["setting"]["method"], *(
            f"{key} {value}" for key, value in row["setting"].items() if key != "method"
        )])
        for row in rows
    ]  # fmt: skip
    return speeds(names, rows, ["C0" if row["lossless"] else "C1" for row in rows])


def speeds(names: Sequence[str], rows: Sequence[dict], colours: Sequence[str]) -> Figure:
    """A bar a row: its `decode_speed` and its `decode_speed_range`."""
    figure, panel = plt.subplots(figsize=(7.5, 0.8 + 0.19 * len(rows)))
    medians = [row["decode_speed"] for row in rows]
    ranges = [row["decode_speed_range"] for row in rows]
    errors = [
        [max(speed - low, 0) for speed, (low, _) in zip(medians, ranges, strict=True)],
        [max(high - speed, 0) for speed, (_, high) in zip(medians, ranges, strict=True)],
    ]
    panel.barh(range(len(rows)), medians, xerr=errors, color=colours, height=0.7)
    panel.set_yticks(range(len(rows)), names, fontsize=7)
    panel.invert_yaxis()
    panel.axvline(1, color="0.4", linewidth=0.8)
    panel.set_xlabel("times plain decoding")
    return figure
