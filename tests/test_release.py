"""A wheel that runs where nothing else is installed, and one version everywhere."""

import importlib
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
MOST = 75e6  # bytes of a wheel
sys.path.insert(0, str(ROOT / "kernels"))
COMPILER = importlib.import_module("build_native").compiler()


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
    released = re.search(r"^date-released: (.*)$", citation, re.M)[1]
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## \[(.*)\] - (.*)$", changes, re.M)
    assert newest.groups() == (bytelax.__version__, released)


def test_workflows_run_what_there_is():
    """Commands of the Makefile, on the Pythons that the package says it runs on."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    workflows = {path.name: path.read_text() for path in ROOT.glob(".github/workflows/*.yml")}
    commands = set(re.findall(r"\bmake ([a-z-]+)", " ".join(workflows.values())))
    assert {"test", "lint", "docs", "test-slow"} <= commands <= targets
    pythons = re.findall(r":: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert pythons == re.findall(r'"(3\.\d+)"', workflows["tests.yml"].partition("include")[0])


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(built):
    _, wheel = built
    assert wheel.name.startswith(f"bytelax-{bytelax.__version__}-py3-none-")
    assert wheel.name.endswith("-any.whl") == (COMPILER is None)
    assert wheel.stat().st_size < MOST
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = f"bytelax-{bytelax.__version__}.dist-info"
    tops = {name.split("/")[0] for name in names}
    assert tops == {"bytelax", "bytelax_kernels", about}
    assert f"{about}/licenses/LICENSE" in names
    assert "bytelax/py.typed" in names
    assert ("bytelax_kernels/libbytelax.so" in names) == (COMPILER is not None)
    models = {name.split("/")[2] for name in names if name.startswith("bytelax/assets/")}
    assert models == {"small-draft", "small-lm", "tiny", "tiny-d", "tiny-draft", "tiny-lm"}


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
    why_not = "from bytelax_kernels import native; print(native.why_not())"
    missing = run(programs / "python", "-c", why_not, cwd=tmp_path).strip()
    assert missing == "None" if COMPILER else missing.startswith("Not compiled: install")


@pytest.mark.slow
def test_without_a_compiler_the_wheel_is_pure(built, monkeypatch, tmp_path):
    sdist, _ = built
    monkeypatch.setenv("CXX", "no-such-compiler")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, sdist, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
