"""The examples of the pages about checkpoints and NNX run as they stand."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.M)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), [("checkpoints.md", 5), ("nnx.md", 3)])
def test_examples(page, least, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    found = blocks(page)
    for block in found:
        exec(compile(block, page, "exec"), names)
    assert len(found) >= least
    assert capsys.readouterr().out
