"""Milliseconds per byte by context: transformers, bytelax, and the floor."""

from matplotlib import pyplot as plt

LINES = {  # figures of a row, and what the line is called
    "transformers_ms": "transformers,\nno cache",
    "bytelax_ms": "bytelax",
    "floor_ms": "reading weights and\ncaches once",
}


def draw(report):
    rows = [row for row in report["rows"] if row["setting"]["contest"] == "blt"]
    figure, panel = plt.subplots(figsize=(6, 3.2))
    contexts = [row["setting"]["context"] for row in rows]
    for colour, (figures, name) in zip(("C1", "C0", "0.5"), LINES.items(), strict=True):
        times = [row[figures] for row in rows]
        panel.plot(contexts, times, marker="o", markersize=4, color=colour)
        panel.annotate(
            name, (contexts[-1], times[-1]), xytext=(8, 0), textcoords="offset points",
            color=colour, va="center", annotation_clip=False,
        )  # fmt: skip
    panel.set(
        title="Milliseconds to write one byte of a 35M-parameter BLT",
        xlabel="bytes of text before it", xscale="log", yscale="log",
    )  # fmt: skip
    panel.set_xticks(contexts, map(str, contexts))
    panel.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
    panel.minorticks_off()
    return figure
