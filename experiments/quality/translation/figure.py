"""BLEU against decoder passes and weights read, a column of panels for each block size."""

from matplotlib import pyplot as plt

from experiments.harness.trained import BLOCK_SIZES
from experiments.quality.translation.run import CONTROL, MODELS, bleu

AXES = {"decoder_passes": "decoder passes", "bandwidth_gb_with_patcher": "weights read"}
MARKERS = {"ar": "s", "blt-s": "^", "blt-d": "o", "blt-dv": "*"}


def draw(report):
    own = {"model": CONTROL, "method": "ar"}
    plain = [row for row in report["rows"] if own.items() <= row["setting"].items()]
    if not plain:
        return None
    figure, panels = plt.subplots(
        len(AXES), len(BLOCK_SIZES), figsize=(7.5, 5), sharex="row", sharey=True
    )
    for line, (name, label) in zip(panels, AXES.items(), strict=True):
        for panel, size in zip(line, BLOCK_SIZES, strict=True):
            drawn: dict[tuple, list] = {}
            for row in report["rows"]:
                setting = row["setting"]
                drafted = setting.get("block_size", setting.get("draft_length"))
                if drafted in (size, None):
                    drawn.setdefault((setting["model"], setting["method"]), []).append(row)
            for (model, method), rows in drawn.items():
                panel.plot(
                    [row[name] / plain[0][name] for row in rows], list(map(bleu, rows)),
                    MARKERS[method], markersize=5, color=f"C{list(MODELS).index(model)}",
                    label=f"{MODELS[model]}, {method}",
                )  # fmt: skip
            panel.set_title(f"blocks of {size}")
        line[0].set(ylabel="BLEU, mean of both", xlim=(0, None), ylim=(0, None))
        line[1].set_xlabel(f"{label}, beside plain decoding of the control")
    figure.legend(
        *panels[0][0].get_legend_handles_labels(), fontsize=8, ncols=2, loc="outside lower center"
    )
    return figure
