"""Bits of a written byte under plain decoding against weights read, a panel a task."""

from matplotlib import pyplot as plt


def draw(report):
    names = report["task_names"]
    figure, panels = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3.4), squeeze=False)
    for panel, name in zip(panels[0], names, strict=True):
        rows = [row for row in report["rows"] if name in row["tasks"]]
        plain = rows[0]["tasks"][name]["bandwidth_gb"]
        for index, method in enumerate(dict.fromkeys(row["setting"]["method"] for row in rows)):
            own = [row["tasks"][name] for row in rows if row["setting"]["method"] == method]
            panel.scatter(
                [task["bandwidth_gb"] / plain for task in own],
                [task["bits_per_byte"] for task in own],
                color=f"C{index}", label=method, s=14,
            )  # fmt: skip
        panel.set(title=name, xlabel="weights read, plain decoding = 1")
        panel.set_xlim(left=0)
    panels[0][0].set_ylabel("bits a written byte, under plain decoding")
    figure.legend(*panels[0][0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    return figure
