"""Figures of what methods write: scores, acceptance, diversity, multiple choice."""

from matplotlib import pyplot as plt


def _fast_blt(report):
    """Bits of a written byte under plain decoding against weights read, a panel a task."""
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
    panels[0][0].legend(fontsize=7)
    return figure


def _diversity(report):
    """The type-token ratio against decoder passes, a line a top-p."""
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


def _acceptance(report):
    """Acceptance by position, a panel a temperature."""
    temperatures = list(dict.fromkeys(row["setting"]["temperature"] for row in report["rows"]))
    figure, panels = plt.subplots(
        1, len(temperatures), figsize=(4.2 * len(temperatures), 3.6), sharey=True, squeeze=False
    )
    for panel, temperature in zip(panels[0], temperatures, strict=True):
        for row in report["rows"]:
            setting = row["setting"]
            if setting["temperature"] == temperature:
                shares = row["parts"]["all"]["acceptance_of_reached_by_position"]
                label = " ".join([setting["method"], setting.get("unmask", "")]).strip()
                panel.plot(range(1, len(shares) + 1), shares, marker=".", label=label)
        panel.set(title=f"temperature {temperature}", xlabel="place in the draft", ylim=(0, 1))
    panels[0][0].set_ylabel("accepted, of those reached")
    panels[0][0].legend(fontsize=7)
    return figure


def _likelihood(report):
    """Accuracy with its interval, beside the chance of a guess."""
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


DRAWN = {
    "acceptance": _acceptance,
    "diversity": _diversity,
    "fast_blt": _fast_blt,
    "likelihood": _likelihood,
}
