"""What the command line imports, and that its short answers import nothing."""

import pathlib
import subprocess
import sys

import pytest

import bytelax
from bytelax import cli
from bytelax.commands import train

HEAVY = ("jax", "flax", "numpy", "tyro", "orbax")


def printed(code):
    """The words of the last line that a program prints."""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()[-1].split()


def imported(code):
    """The packages of `HEAVY` that a program imports."""
    return printed(f"{code}; import sys; print(*(name for name in {HEAVY} if name in sys.modules))")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["genrate", "x"], []])
def test_the_table_of_commands_imports_nothing(arguments):
    assert imported(f"from bytelax import cli; cli.main({arguments})") == []


def test_help_and_typing_errors_import_no_jax():
    asked = [[name, "--help"] for name in cli.COMMANDS]
    asked += [["train", kind, "--help"] for kind in train.KINDS]
    asked += [["generate", "--method", method, "--help"] for method in bytelax.options.METHODS]
    asked += [["methods"], ["methods", "--json"]]
    asked += [
        ["generate", "--metod", "x"],
        ["generate", "--method", "blt-x"],
        ["bench", "blt-x"],
        ["train", "blx"],
        ["train", "blt", "--out", "x", "--optimizer.steps", "x"],
        ["convert"],
    ]
    assert imported(f"from bytelax import cli; [cli.main(x) for x in {asked}]") == ["tyro"]


def test_configs_import_no_jax():
    """Nor anything else that takes long: flags are made of them, and of the options."""
    files = pathlib.Path(bytelax.__file__).parent.glob("*/configs.py")
    names = [f"bytelax.{file.parent.name}.configs" for file in files]
    assert len(names) == 3
    names.append("bytelax.options")
    assert set(imported(f"import {', '.join(names)}")) <= {"tyro"}


def test_every_public_name_is_there():
    assert [name for name in bytelax.__all__ if not hasattr(bytelax, name)] == []
    root = pathlib.Path(__file__).parents[1]
    source, page = root / "bytelax/__init__.py", root / "docs/reference/bytelax.md"
    for name in bytelax.__all__:  # editors and the reference read them without running anything
        assert f"import {name} as {name}\n" in source.read_text(), name
        assert f"::: bytelax.{name}\n" in page.read_text() or name == "decode", name
    assert bytelax.options.METHODS
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        bytelax.nothing  # noqa: B018


def test_generating_with_a_bundled_model_imports_neither_orbax_nor_kernels_of_accelerators():
    modules = printed(
        "import sys, bytelax.running; bytelax.load('tiny-draft'); print(*sys.modules)"
    )
    kernels = {name.rpartition(".")[2] for name in modules if name.startswith("bytelax_kernels")}
    assert "verify_attention" in kernels and not kernels & {"tpu", "hopper", "cudnn"}
    assert "jax.experimental.pallas" not in modules
    assert "orbax" not in modules


@pytest.mark.slow
def test_a_generation_compiles_three_programs():
    """Prefill, decoding, and a trial of compiler options; further ones delay the text."""
    code = """
import jax, bytelax
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **about: compiled.append(event) if "backend_compile" in event else None)
bytelax.generate(bytelax.load("tiny"), ["x"], max_new_bytes=4, stop=["\\n"], temperature=0.5)
print(len(compiled))"""
    assert int(printed(code)[0]) <= 3
