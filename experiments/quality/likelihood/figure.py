"""Accuracy with its interval, beside the chance of a guess."""

from matplotlib import pyplot as plt


def draw(report):
    rows = report["rows"]
    figure, panel = plt.subplots(figsize=(6, 0.8 + 0.32 * len(rows)))
    for place, row in enumerate(rows):
        for shift, name in ((-0.15, "accuracy"), (0.15, "accuracy_normalised")):
            share = row[name]
            panel.plot([share["low"], share["high"]], [place + shift] * 2, color=f"C{shift > 0:d}")
            panel.plot(share["value"], place + shift, ".", color=f"C{shift > 0:d}")
        panel.plot(row["chance"], place, "|", color="0.3", markersize=14)
    names = [f"{row['setting']['model']}: {row['setting']['task']}" for row in rows]
    panel.set_yticks(range(len(rows)), names, fontsize=7)
    panel.invert_yaxis()
    panel.set(xlabel="accuracy: whole, then by bytes; bar: chance", xlim=(0, 1))
    return figure
