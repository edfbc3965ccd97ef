"""Exact match against decoder passes and weights read, a column of panels for each block size."""

from matplotlib import pyplot as plt

from experiments.harness import intervals
from experiments.harness.trained import BLOCK_SIZES
from experiments.quality.rule_tasks.run import CONTROL, MODELS, mean, over_seeds

AXES = {"decoder_passes": "decoder passes", "bandwidth_gb_with_patcher": "weights read"}


def draw(report):
    groups = over_seeds(report)
    plain = next((rows for own, rows in groups if own == {"model": CONTROL, "method": "ar"}), None)
    if plain is None:
        return None
    figure, panels = plt.subplots(
        len(AXES), len(BLOCK_SIZES), figsize=(7.5, 5), sharex="row", sharey=True
    )
    for line, (name, label) in zip(panels, AXES.items(), strict=True):
        for panel, size in zip(line, BLOCK_SIZES, strict=True):
            drawn = {(CONTROL, "ar"): [plain]}
            for setting, rows in groups:
                if setting.get("block_size") == size:
                    drawn.setdefault((setting["model"], setting["method"]), []).append(rows)
            for (model, method), own in drawn.items():
                rights = [intervals.of_seeds([row["exact_match"] for row in rows]) for rows in own]
                panel.errorbar(
                    [mean(rows, name) / mean(plain, name) for rows in own],
                    [100 * right["value"] for right in rights],
                    yerr=[
                        [100 * (right["value"] - right["interval"][0]) for right in rights],
                        [100 * (right["interval"][1] - right["value"]) for right in rights],
                    ],
                    fmt={"ar": "s", "blt-d": "o", "blt-dv": "*"}[method], markersize=5,
                    elinewidth=0.8, color=f"C{list(MODELS).index(model)}",
                    label=f"{MODELS[model]}, {method}",
                )  # fmt: skip
            panel.set_title(f"blocks of {size}")
        line[0].set(ylabel="right answers, %", xlim=(0, None), ylim=(0, 100))
        line[1].set_xlabel(f"{label}, beside plain decoding of the control")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), fontsize=8, ncols=2, loc="outside lower center"
    )
    return figure
