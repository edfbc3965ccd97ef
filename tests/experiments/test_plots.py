"""What a reader can tell apart in a figure."""

import importlib.util
import json

import pytest

from experiments.harness import discovery, study

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="figures are drawn by matplotlib"
)


def drawn() -> list:
    """The studies with a figure, and the results that it shows."""
    found = []
    for each in discovery.studies():
        for name in each.results:
            path = each.folder / f"{name}.json"
            if study.figure(path).exists():
                found.append(pytest.param(each, path, id=f"{each.name}/{name}"))
    return found


@pytest.mark.parametrize(("each", "path"), drawn())
def test_a_panel_has_at_most_five_lines(each, path):
    from matplotlib import pyplot as plt

    from experiments.harness import plots  # noqa: F401 (its settings)

    figure = each.module("figure").draw(json.loads(path.read_text()))
    for panel in figure.axes:
        assert sum(len(line.get_xdata()) > 2 for line in panel.lines) <= 5, panel.get_title()
        assert panel.get_legend() is None
    plt.close(figure)


@pytest.mark.parametrize(
    ("heights", "wanted"),
    [
        ([0.1, 0.5, 0.9], [0.1, 0.5, 0.9]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.1, 0.48, 0.52, 0.55], [0.1, 0.41666, 0.51666, 0.61666]),
        ([0.3, 0.35, 0.4, 0.9], [0.25, 0.35, 0.45, 0.9]),
        ([], []),
    ],
)
def test_names_are_apart_and_close_to_their_lines(heights, wanted):
    from experiments.harness import plots

    assert plots.apart(heights, 0.1) == pytest.approx(wanted, abs=1e-4)
