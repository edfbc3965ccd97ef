"""Speed of every setting, with its range; windows have a table only."""

from experiments.harness import plots


def draw(report):
    return plots.settings(report) if "method" in report["rows"][0]["setting"] else None
