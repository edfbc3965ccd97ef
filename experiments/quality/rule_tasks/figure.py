"""Exact match against weights read, a panel for the BLT-Ds of each block size."""

from matplotlib import pyplot as plt

NAMES = {
    "task-d4": "blocks of 4",
    "task-d4-again": "of 4, other seed",
    "task-d8": "blocks of 8",
    "task-d16": "blocks of 16",
    "task-d": "all three sizes",
}


def draw(report):
    rows = report["rows"]
    plain = next((row for row in rows if row["setting"] == {"model": "task", "method": "ar"}), None)
    models = [m for m in dict.fromkeys(row["setting"]["model"] for row in rows) if m != "task"]
    if plain is None or not models:
        return None
    figure, panels = plt.subplots(
        1, len(models), figsize=(2 + 1.9 * len(models), 3), sharey=True, squeeze=False
    )
    for panel, model in zip(panels[0], models, strict=True):
        for index, method in enumerate(("ar", "blt-d", "blt-dv")):
            own = [row for row in rows if row["setting"]["model"] == model]
            own = [row for row in own if row["setting"]["method"] == method]
            values = [100 * row["exact_match"]["value"] for row in own]
            low, high = (
                zip(*(row["exact_match"]["interval"] for row in own), strict=True)
                if own
                else ((), ())
            )
            panel.errorbar(
                [
                    row["bandwidth_gb_with_patcher"] / plain["bandwidth_gb_with_patcher"]
                    for row in own
                ],
                values,
                yerr=[
                    [max(v - 100 * x, 0) for v, x in zip(values, low, strict=True)],
                    [max(100 * x - v, 0) for v, x in zip(values, high, strict=True)],
                ],
                fmt="o", markersize=4, elinewidth=0.7, color=f"C{index}", label=method,
            )  # fmt: skip
        panel.axhline(100 * plain["exact_match"]["value"], color="0.5", linewidth=0.8)
        panel.set(title=NAMES.get(model, model), xlabel="weights read", ylim=(0, 100))
        panel.set_xlim(left=0)
    panels[0][0].set_ylabel("right answers, %; line: the BLT")
    figure.legend(*panels[0][0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure
