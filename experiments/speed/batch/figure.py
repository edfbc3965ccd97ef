"""Speed by batch size, a panel for each model and temperature."""

from matplotlib import pyplot as plt


def draw(report):
    kinds = [(row["setting"]["model"], row["setting"]["temperature"]) for row in report["rows"]]
    panels_of = list(dict.fromkeys(kinds))
    figure, panels = plt.subplots(
        1, len(panels_of), figsize=(4.4 * len(panels_of), 3.6), squeeze=False
    )
    for panel, (model, temperature) in zip(panels[0], panels_of, strict=True):
        rows = [
            row
            for row, kind in zip(report["rows"], kinds, strict=True)
            if kind == (model, temperature)
        ]
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
        panel.set(
            xlabel="batch", ylabel="times the best plain decoding",
            title=f"{model}, temperature {temperature:g}",
        )  # fmt: skip
        panel.set_ylim(bottom=0)
        panel.legend(fontsize=7)
    return figure
