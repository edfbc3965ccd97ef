"""Kept bytes by place, of those reached on held-out text: a row a kind of model."""

from matplotlib import pyplot as plt

from experiments.harness import plots

KINDS = {"BLT": ("tiny", "tiny-d"), "byte transformer": ("tiny-lm",)}


def draw(report):
    rows = report["rows"]
    temperatures = list(dict.fromkeys(row["setting"]["temperature"] for row in rows))
    kinds = {
        kind: own
        for kind, models in KINDS.items()
        if (own := [row for row in rows if row["setting"]["model"] in models])
    }
    figure, panels = plt.subplots(
        len(kinds), len(temperatures), figsize=(2.6 * len(temperatures) + 1.2, 2.6 * len(kinds)),
        sharex="row", sharey=True, squeeze=False,
    )  # fmt: skip
    for line_of_panels, (kind, own) in zip(panels, kinds.items(), strict=True):
        names = list(dict.fromkeys(map(_name, own)))
        for panel, temperature in zip(line_of_panels, temperatures, strict=True):
            panel.set_ylim(0, 1)
            ends = []
            for row in own:
                if row["setting"]["temperature"] == temperature:
                    shares = row["kinds"]["held out"]["kept_once_reached_by_position"]
                    places, colour = range(1, len(shares) + 1), f"C{names.index(_name(row))}"
                    panel.plot(places, shares, marker=".", color=colour)
                    # No draft may have reached the last places: they have no share.
                    reached = [end for end in zip(places, shares, strict=True) if None not in end]
                    ends += [(*end, _name(row), colour) for end in reached[-1:]]
        plots.name_lines(panel, ends)
        line_of_panels[0].set_ylabel(f"{kind}: kept, of those reached")
    for top, bottom, temperature in zip(panels[0], panels[-1], temperatures, strict=True):
        top.set_title(f"temperature {temperature:g}")
        bottom.set_xlabel("place in the draft")
    return figure


def _name(row):
    setting = row["setting"]
    return " ".join([setting["method"], setting.get("unmask", "")]).strip()
