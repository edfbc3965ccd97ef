"""The Python of every page runs as it stands, from top to bottom, and its commands exist."""

import re
import shlex

import models_for_tests as models
import pages
import pytest

from bytelax import checkpoints, cli

_QUICK = {"docs/calculator.md"}  # it compiles nothing


def _with_python():
    for page in pages.PAGES:
        if pages.blocks(page, "python"):
            marks = () if pages.name(page) in _QUICK else pytest.mark.slow
            yield pytest.param(page, id=pages.name(page), marks=marks)


@pytest.mark.parametrize("page", _with_python())
def test_python(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pages.run(pages.blocks(page, "python"), page)
    assert capsys.readouterr().out
