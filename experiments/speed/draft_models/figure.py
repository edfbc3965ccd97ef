"""Bytes a round and speed by the size of the draft model."""

from matplotlib import pyplot as plt


def draw(report):
    rows = [row for row in report["rows"] if row["setting"]["read"] == "everything"]
    share = [row["parameters"] / report["parameters"] for row in rows]
    figure, (kept, speed) = plt.subplots(1, 2, figsize=(7.5, 2.6))
    for temperature, colour in (("0", "C0"), ("1", "C1")):
        own = [row[f"T={temperature}"] for row in rows]
        every = [each["bytes_per_round"] for each in own]
        ends = list(zip(*(each["interval"] for each in every), strict=True))
        kept.plot(share, [each["value"] for each in every], color=colour, marker="o", markersize=3)
        kept.fill_between(share, *ends, color=colour, alpha=0.2, linewidth=0)
        speeds = [each["decode_speed"] for each in own]
        speed.plot(share, speeds, color=colour, marker="o", markersize=3)
        speed.annotate(
            f"temperature {temperature}", (share[-1], speeds[-1]), color=colour,
            xytext=(0, 6), textcoords="offset points", ha="right",
        )  # fmt: skip
    kept.set_ylabel("bytes a round")
    speed.set_ylabel("times plain decoding")
    speed.axhline(1, color="0.4", linewidth=0.8)
    for panel in (kept, speed):
        panel.set_xlabel("parameters, as a share of the target's")
        panel.set_xscale("log")
    return figure
