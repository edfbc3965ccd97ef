"""Speed of every method, a colour a model."""

from experiments.harness import plots


def draw(report):
    names, rows, colours = [], [], []
    for index, row in enumerate(report["rows"]):
        setting = row["setting"]
        where = f"{setting['shape']}, acceptance {setting['acceptance']}"
        for name, method in row["methods"].items():
            if name != "plain":
                names.append(f"{where}: {name}")
                rows.append(method)
                colours.append(f"C{index}")
    return plots.speeds(names, rows, colours)
