"""Bytes per round and speed by the size of the draft model."""

from matplotlib import pyplot as plt
from matplotlib.ticker import NullLocator

from experiments.harness import plots


def draw(report):
    rows = [row for row in report["rows"] if row["setting"]["read"] == "everything"]
    share = [row["parameters"] / report["parameters"] for row in rows]
    figure, (kept, speed) = plt.subplots(1, 2, figsize=(7.5, 2.6))
    ends = []
    for temperature, colour in (("0", "C0"), ("1", "C1")):
        own = [row[f"T={temperature}"] for row in rows]
        every = [each["bytes_per_round"] for each in own]
        low, high = zip(*(each["interval"] for each in every), strict=True)
        kept.plot(share, [each["value"] for each in every], color=colour, marker="o", markersize=3)
        kept.fill_between(share, low, high, color=colour, alpha=0.2, linewidth=0)
        speeds = [each["decode_speed"] for each in own]
        low, high = zip(*(each["decode_speed_range"] for each in own), strict=True)
        speed.plot(share, speeds, color=colour, marker="o", markersize=3)
        speed.fill_between(share, low, high, color=colour, alpha=0.2, linewidth=0)
        ends.append((share[-1], speeds[-1], f"temperature {temperature}", colour))
    kept.set_ylabel("bytes per round")
    speed.set_ylabel("times plain decoding")
    speed.axhline(1, color="0.4", linewidth=0.8)
    for panel in (kept, speed):
        panel.set_xlabel("parameters, as a share of the target's")
        panel.set_xscale("log")
        panel.set_xticks(share, [f"{each:.2f}" for each in share])
        panel.xaxis.set_minor_locator(NullLocator())
    plots.name_lines(speed, ends)
    return figure
