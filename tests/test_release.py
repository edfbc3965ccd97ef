"""A wheel that runs where nothing else is installed, and one version everywhere."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import bytelax

ROOT = Path(__file__).parent.parent
MOST_ASSETS = 75e6  # bytes of all bundled models in the wheel


def run(*command, cwd):
    """Runs a command of an environment of its own; returns what it printed."""
    own = {name: x for name, x in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "hatchling"]
    if subprocess.run(probe, cwd=out.parent, capture_output=True).returncode:
        pytest.skip("no index of packages in reach")
    run(sys.executable, "-m", "build", "--outdir", out, ROOT, cwd=out)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def test_one_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.M)[1] == bytelax.__version__
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## \[(.*)\]", changes, re.M)[1] == bytelax.__version__


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built):
    _, wheel = built
    assert wheel.name == f"bytelax-{bytelax.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    about = f"bytelax-{bytelax.__version__}.dist-info"
    tops = {name.split("/")[0] for name in sizes}
    assert tops == {"bytelax", "bytelax_kernels", about}
    assert f"{about}/licenses/LICENSE" in sizes
    assert "bytelax/py.typed" in sizes
    assets = {name: size for name, size in sizes.items() if name.startswith("bytelax/assets/")}
    models = {name.split("/")[2] for name in assets}
    assert models == {"small-draft", "small-lm", "tiny", "tiny-d", "tiny-draft", "tiny-lm"}
    assert sum(assets.values()) < MOST_ASSETS


@pytest.mark.slow
def test_the_sdist_holds_what_is_released(built):
    sdist, _ = built
    with tarfile.open(sdist) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 1}
    assert tops == {
        "bytelax", "kernels", "docs", "pyproject.toml", "PKG-INFO",
        ".gitignore", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md",
    }  # fmt: skip


@pytest.mark.slow
def test_the_wheel_runs_where_nothing_else_is_installed(built, tmp_path):
    _, wheel = built
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    programs = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert (
        run(programs / "bytelax", "--version", cwd=tmp_path) == f"bytelax {bytelax.__version__}\n"
    )
    command = "generate --model tiny --max-new-bytes 8 x".split()
    assert len(run(programs / "bytelax", *command, cwd=tmp_path)) >= 8
