"""Exact match against decoder passes and weights read, a column of panels for each block size."""

from experiments.harness import intervals, plots
from experiments.quality.rule_tasks.run import CONTROL, MODELS, mean, over_seeds


def draw(report):
    groups = over_seeds(report)
    plain = next((rows for own, rows in groups if own == {"model": CONTROL, "method": "ar"}), None)
    if plain is None:
        return None

    def points(size):
        drawn = {(CONTROL, "ar"): [plain]}
        for setting, rows in groups:
            if setting.get("block_size") == size:
                drawn.setdefault((setting["model"], setting["method"]), []).append(rows)
        for (model, method), own in drawn.items():
            rights = [intervals.of_seeds([row["exact_match"] for row in rows]) for rows in own]
            yield plots.Points(
                MODELS[model],
                method,
                [{x: mean(rows, x) / mean(plain, x) for x in plots.COSTS} for rows in own],
                [100 * right["value"] for right in rights],
                (
                    [100 * (right["value"] - right["interval"][0]) for right in rights],
                    [100 * (right["interval"][1] - right["value"]) for right in rights],
                ),
            )

    return plots.by_cost(points, MODELS.values(), "right answers, %", 100)
