"""Figures of the studies, drawn from their JSON."""

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {
    "svg.hashsalt": "bytelax", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
    "axes.spines.right": False, "figure.constrained_layout.use": True,
}  # fmt: skip

import score_figures  # noqa: E402 (after the settings that it reads)
from matplotlib import pyplot as plt  # noqa: E402


def draw(name, report, path):
    """Writes the figure of a study, if there is one for it; says whether."""
    if name not in _DRAWN or not report["rows"]:
        return False
    figure = _DRAWN[name](report)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return True


def _batch(report):
    """Speed by batch size, a panel a model."""
    families = list(dict.fromkeys(row["setting"]["model"] for row in report["rows"]))
    figure, panels = plt.subplots(
        1, len(families), figsize=(5.2 * len(families), 3.6), squeeze=False
    )
    for panel, family in zip(panels[0], families, strict=True):
        rows = [row for row in report["rows"] if row["setting"]["model"] == family]
        for name in rows[-1]["methods"]:
            there = [row for row in rows if name in row["methods"]]
            sizes = [row["setting"]["batch"] for row in there]
            methods = [row["methods"][name] for row in there]
            speeds = [m["decode_speed"] for m in methods]
            low, high = zip(*(m["decode_speed_range"] for m in methods), strict=True)
            style = "--" if name.startswith("plain") else "-"
            (line,) = panel.plot(sizes, speeds, style, marker=".", label=name)
            panel.fill_between(sizes, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        panel.axhline(1, color="0.6", linewidth=0.8)
        panel.set_xscale("log", base=2)
        sizes = [row["setting"]["batch"] for row in rows]
        panel.set_xticks(sizes, map(str, sizes))
        panel.set(xlabel="batch", ylabel="times the best plain decoding", title=family)
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=7)
    return figure


def _bars(report):
    """Speed of every setting, with its range."""
    rows = [row for row in report["rows"] if row["setting"]["method"] != "ar"]
    names = [
        ", ".join([row["setting"]["method"], *(
            f"{key} {value}" for key, value in row["setting"].items() if key != "method"
        )])
        for row in rows
    ]  # fmt: skip
    return _horizontal(names, rows, ["C0" if row["lossless"] else "C1" for row in rows])


def _wall_clock(report):
    names, rows, colours = [], [], []
    for index, row in enumerate(report["rows"]):
        setting = row["setting"]
        where = setting.get("model") or f"{setting['shape']}, acceptance {setting['acceptance']}"
        for name, method in row["methods"].items():
            if name != "plain":
                names.append(f"{where}: {name}")
                rows.append(method)
                colours.append(f"C{index}")
    return _horizontal(names, rows, colours)


def _horizontal(names, rows, colours):
    figure, panel = plt.subplots(figsize=(7.5, 0.8 + 0.19 * len(rows)))
    speeds = [row["decode_speed"] for row in rows]
    ranges = [row["decode_speed_range"] for row in rows]
    errors = [
        [max(speed - low, 0) for speed, (low, _) in zip(speeds, ranges, strict=True)],
        [max(high - speed, 0) for speed, (_, high) in zip(speeds, ranges, strict=True)],
    ]
    panel.barh(range(len(rows)), speeds, xerr=errors, color=colours, height=0.7)
    panel.set_yticks(range(len(rows)), names, fontsize=7)
    panel.invert_yaxis()
    panel.axvline(1, color="0.4", linewidth=0.8)
    panel.set_xlabel("times plain decoding")
    return figure


def _vs_peers(report):
    rows = [row for row in report["rows"] if row["setting"]["contest"] == "blt"]
    figure, panel = plt.subplots(figsize=(5, 3.4))
    contexts = [row["setting"]["context"] for row in rows]
    for name, figures in (
        ("transformers", "transformers_ms"),
        ("bytelax", "bytelax_ms"),
        ("floor: reading once", "floor_ms"),
    ):
        panel.plot(contexts, [row[figures] for row in rows], marker=".", label=name)
    panel.set(xlabel="bytes of context", ylabel="milliseconds a byte", xscale="log", yscale="log")
    panel.set_xticks(contexts, map(str, contexts))
    panel.minorticks_off()
    panel.legend()
    return figure


_DRAWN = {
    "batch": _batch,
    "blt_methods": _bars,
    "blt_methods_sampled": _bars,
    "self_drafting": _bars,
    "vs_peers": _vs_peers,
    "wall_clock": _wall_clock,
    "wall_clock_gpu": _wall_clock,
    **score_figures.DRAWN,
}
