"""What the process of a command leaves behind: its exit code, and a line at most."""

import os
import subprocess
import sys

import pytest

ENVIRONMENT = {name: x for name, x in os.environ.items() if name != "PYTHONUNBUFFERED"}
ENVIRONMENT |= {"JAX_COMPILATION_CACHE_DIR": ".cache/jax"}


def ran(command, **how):
    """A command of the shell, with `bytelax` for the command."""
    spelt = command.replace("bytelax", f"{sys.executable} -m bytelax")
    return subprocess.run(
        ["bash", "-c", spelt], env=ENVIRONMENT, stderr=subprocess.PIPE, timeout=300, **how
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments", ["methods", pytest.param("methods --json", marks=pytest.mark.slow)]
)
def test_a_full_disk_is_one_line(arguments):
    """Nothing is written before the end, where Python says 120 and much more."""
    done = ran(f"bytelax {arguments} > /dev/full")
    assert done.returncode == 2
    assert done.stderr == b"bytelax: [Errno 28] No space left on device\n"


def test_a_reader_that_has_seen_enough():
    done = ran("bytelax methods | true; exit ${PIPESTATUS[0]}")
    assert done.returncode == 141 and done.stderr == b""


def test_no_standard_output():
    done = ran("bytelax methods >&-")
    assert done.returncode == 2 and done.stderr == b"bytelax: standard output is closed\n"


@pytest.mark.parametrize(
    "module", ["bytelax.commands", "jax._src.lib", pytest.param("tyro", marks=pytest.mark.slow)]
)
def test_an_interrupt_while_modules_are_imported(module):
    """The process interrupts itself, where an exception is lost: JAX's callbacks lose them, too."""
    program = f"""
import os, signal, sys
class Interrupt:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
class Finder:
    def find_spec(self, name, *_):
        if name == "{module}":
            Interrupt()
sys.meta_path.insert(0, Finder())
from bytelax import cli
sys.argv = ["bytelax", "generate", "x"]
sys.exit(cli.script())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=ENVIRONMENT)
    assert done.returncode == 130 and done.stderr == b"bytelax: interrupted\n"


@pytest.mark.slow  # 20 s: the bundled model
def test_generate_to_a_full_disk_and_to_a_short_reader():
    done = ran("bytelax generate --model tiny-lm --max-new-bytes 8 abc > /dev/full")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    done = ran(
        "bytelax generate --model tiny-lm --max-new-bytes 8 abc | true; exit ${PIPESTATUS[0]}"
    )
    assert done.returncode == 141 and done.stderr == b""
