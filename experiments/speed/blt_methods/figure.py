"""Speed of every setting, with its range."""

from experiments.harness import plots


def draw(report):
    return plots.settings(report)
