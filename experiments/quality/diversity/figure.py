"""The type-token ratio against decoder passes, a line a top-p; plain decoding is a star."""

from matplotlib import pyplot as plt

from experiments.harness import plots


def draw(report):
    figure, panel = plt.subplots(figsize=(5.4, 3.6))
    rows, ends = report["rows"], []
    for index, top_p in enumerate(dict.fromkeys(row["setting"]["top_p"] for row in rows)):
        own = [row for row in rows if row["setting"]["top_p"] == top_p]
        for method, marker, line in (("blt-d", "o", "-"), ("ar", "*", "")):
            points = [row for row in own if row["setting"]["method"] == method]
            passes = [row["decoder_passes"] for row in points]
            ratios = [row["type_token_ratio"] for row in points]
            panel.plot(passes, ratios, line, marker=marker, color=f"C{index}")
            if method == "ar" and points:
                ends.append((passes[-1], ratios[-1], f"top-p {top_p}", f"C{index}"))
    panel.set(xlabel="decoder passes a sample; star: plain decoding", ylabel="type-token ratio")
    plots.name_lines(panel, ends)
    return figure
