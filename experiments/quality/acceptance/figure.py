"""Kept bytes by place, of those reached on held-out text, a panel a temperature."""

from matplotlib import pyplot as plt


def draw(report):
    temperatures = list(dict.fromkeys(row["setting"]["temperature"] for row in report["rows"]))
    figure, panels = plt.subplots(
        1, len(temperatures), figsize=(4.2 * len(temperatures), 3.6), sharey=True, squeeze=False
    )
    for panel, temperature in zip(panels[0], temperatures, strict=True):
        for row in report["rows"]:
            setting = row["setting"]
            if setting["temperature"] == temperature:
                shares = row["kinds"]["held out"]["kept_once_reached_by_position"]
                own = (setting["model"], setting["method"], setting.get("unmask", ""))
                label = " ".join(own).strip()
                panel.plot(range(1, len(shares) + 1), shares, marker=".", label=label)
        panel.set(title=f"temperature {temperature}", xlabel="place in the draft", ylim=(0, 1))
    panels[0][0].set_ylabel("kept, of those reached")
    panels[0][0].legend(fontsize=7)
    return figure
