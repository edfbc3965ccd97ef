"""Bytes per round, without loops, by the text that an EAGLE layer learned from."""

from matplotlib import pyplot as plt

from experiments.harness import plots
from experiments.training.draft_curve.run import LAYERS


def draw(report):
    own = [row for row in report["rows"] if row["setting"]["run"] in LAYERS]
    if len({row["setting"]["run"] for row in own}) < 2:
        return None
    figure, panel = plt.subplots(figsize=(5, 3))
    ends = []
    for length in (4, 12):
        for temperature, style in ((0.0, "-o"), (1.0, "--s")):
            rows = [
                row
                for row in own
                if row["setting"]["draft_length"] == length
                and row["setting"]["temperature"] == temperature
            ]
            if not rows:
                continue
            (line,) = panel.plot(
                [row["setting"]["trained"]["bytes"] / 1e6 for row in rows],
                [row["bytes_per_round_without_loops"]["value"] for row in rows],
                style,
                markersize=4,
            )
            name = f"{length} drafted, T = {temperature:g}"
            ends.append((line.get_xdata()[-1], line.get_ydata()[-1], name, line.get_color()))
    panel.set(xscale="log", xlabel="MB of text that the layer learned from", ylim=(1, None))
    panel.set_ylabel("bytes per round, without loops")
    plots.name_lines(panel, ends)
    return figure
