"""Speed by batch size, a panel for each model and temperature; plain decoding is the line at 1."""

from matplotlib import pyplot as plt

from experiments.harness import plots


def draw(report):
    kinds = [(row["setting"]["model"], row["setting"]["temperature"]) for row in report["rows"]]
    panels_of = list(dict.fromkeys(kinds))
    figure, panels = plt.subplots(
        1, len(panels_of), figsize=(3.6 * len(panels_of), 3), squeeze=False
    )
    for panel, (model, temperature) in zip(panels[0], panels_of, strict=True):
        rows = [
            row
            for row, kind in zip(report["rows"], kinds, strict=True)
            if kind == (model, temperature)
        ]
        ends = []
        for name in (name for name in rows[-1]["methods"] if not name.startswith("plain")):
            there = [row for row in rows if name in row["methods"]]
            sizes = [row["setting"]["batch"] for row in there]
            methods = [row["methods"][name] for row in there]
            speeds = [m["decode_speed"] for m in methods]
            low, high = zip(*(m["decode_speed_range"] for m in methods), strict=True)
            (line,) = panel.plot(sizes, speeds, marker=".")
            panel.fill_between(sizes, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
            ends.append((sizes[-1], speeds[-1], name, line.get_color()))
        panel.axhline(1, color="0.6", linewidth=0.8)
        panel.set_xscale("log", base=2)
        sizes = [row["setting"]["batch"] for row in rows]
        panel.set_xticks(sizes, map(str, sizes))
        panel.set(
            xlabel="batch", title=f"{model}, temperature {temperature:g}",
        )  # fmt: skip
        panel.set_ylim(bottom=0)
        plots.name_lines(panel, ends)
    panels[0][0].set_ylabel("times the best plain decoding")
    return figure
