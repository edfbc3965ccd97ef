"""The notebooks run from top to bottom on the CPU, and are kept without outputs."""

import jax
import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers import pages

NOTEBOOKS = sorted(pages.ROOT.glob("docs/notebooks/*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", jax.config.jax_compilation_cache_dir)
    notebook = nbformat.read(path, as_version=4)
    # The kernel inherits the environment, and with it the CPU and the few optimisations of tests.
    client = NotebookClient(notebook, timeout=None, resources={"metadata": {"path": tmp_path}})
    client.execute()
    assert any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_kept(path):
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
