"""The type-token ratio against decoder passes, a line a top-p."""

from matplotlib import pyplot as plt


def draw(report):
    figure, panel = plt.subplots(figsize=(5.4, 3.6))
    rows = report["rows"]
    for index, top_p in enumerate(dict.fromkeys(row["setting"]["top_p"] for row in rows)):
        own = [row for row in rows if row["setting"]["top_p"] == top_p]
        for method, marker, line in (("blt-d", "o", "-"), ("ar", "*", "")):
            points = [row for row in own if row["setting"]["method"] == method]
            panel.plot(
                [row["decoder_passes"] for row in points],
                [row["type_token_ratio"] for row in points],
                line, marker=marker, color=f"C{index}", label=f"{method}, top-p {top_p}",
            )  # fmt: skip
    panel.set(xlabel="decoder passes a sample", ylabel="type-token ratio")
    panel.legend(fontsize=7)
    return figure
