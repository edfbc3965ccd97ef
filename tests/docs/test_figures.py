"""Figures on the pages are those of the results that they link to."""

import pytest

from tests.helpers import claims, pages


def missing(said) -> list[tuple[str, str]]:
    """Those that their page does not have, however its lines are broken."""
    texts = {page: " ".join((pages.ROOT / page).read_text().split()) for page, _ in said}
    return [(page, fragment) for page, fragment in said if fragment not in texts[page]]


@pytest.mark.parametrize("found", claims.CLAIMS, ids=lambda found: found.__name__)
def test_figures_are_those_that_were_measured(found):
    said = list(found())
    assert said and not missing(said)


def test_another_figure_is_seen(tmp_path, monkeypatch):
    said = [*claims.beside_transformers(), *claims.int8()]
    texts = {page: (pages.ROOT / page).read_text() for page, _ in said}
    assert not missing(said)
    page, ratio = said[1][0], said[1][1].split("|")[-2].strip()  # "44 (43 to 45)"
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace(ratio, "46 (43 to 47)"))
    ((where, wrong),) = missing(said)
    assert where == page and ratio in wrong
