"""Milliseconds a byte by context: transformers, bytelax, and the floor."""

from matplotlib import pyplot as plt


def draw(report):
    rows = [row for row in report["rows"] if row["setting"]["contest"] == "blt"]
    figure, panel = plt.subplots(figsize=(5, 3.4))
    contexts = [row["setting"]["context"] for row in rows]
    for name, figures in (
        ("transformers", "transformers_ms"),
        ("bytelax", "bytelax_ms"),
        ("floor: reading once", "floor_ms"),
    ):
        panel.plot(contexts, [row[figures] for row in rows], marker=".", label=name)
    panel.set(xlabel="bytes of context", ylabel="milliseconds a byte", xscale="log", yscale="log")
    panel.set_xticks(contexts, map(str, contexts))
    panel.minorticks_off()
    panel.legend()
    return figure
