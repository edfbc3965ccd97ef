"""BLEU against decoder passes and weights read, a column of panels for each block size."""

from experiments.harness import plots
from experiments.quality.translation.run import CONTROL, MODELS, bleu


def draw(report):
    own = {"model": CONTROL, "method": "ar"}
    plain = next((row for row in report["rows"] if own.items() <= row["setting"].items()), None)
    if plain is None:
        return None

    def points(size):
        drawn: dict[tuple, list] = {}
        for row in report["rows"]:
            setting = row["setting"]
            if setting.get("block_size", setting.get("draft_length")) in (size, None):
                drawn.setdefault((setting["model"], setting["method"]), []).append(row)
        for (model, method), rows in drawn.items():
            costs = [{name: row[name] / plain[name] for name in plots.COSTS} for row in rows]
            yield plots.Points(MODELS[model], method, costs, list(map(bleu, rows)))

    return plots.by_cost(points, MODELS.values(), "BLEU, mean of both", None)
