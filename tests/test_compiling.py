"""Seconds of compiling, and where programs are kept."""

import functools
import logging
import os
import platform
import subprocess
import sys
import threading
import types
import zlib

import jax
import jax.numpy as jnp
import pytest

import bytelax
from bytelax import compiling


def test_seconds_are_counted_once_and_only_where_they_are_spent():
    inner = jax.jit(lambda x: jnp.sin(x) + 1)
    outer = jax.jit(lambda x: inner(x) * 2)  # traced within a trace
    with compiling.watch() as all_of_it:
        with compiling.watch() as first:
            outer(1.0)
        with compiling.watch() as again:
            outer(2.0)
    assert first.seconds > 0 and again.seconds == 0 and all_of_it.seconds == 0
    outer(jnp.ones(3))  # nobody watches
    spans = compiling.Compiling()
    spans.add(1e-3)
    spans.add(10.0)  # began before, and holds it
    assert spans.seconds == pytest.approx(10.0)


class Impatient:
    """A timer that is always over."""

    def __init__(self, seconds, function, args):
        self.start = functools.partial(function, *args)
        self.cancel = lambda: None


def test_a_program_that_compiles_for_long_is_news(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, logger=compiling.__name__)  # `cli.main` raises it
    monkeypatch.setattr(compiling.threading, "Timer", Impatient)
    monkeypatch.setattr(compiling, "PATIENCE", 0.0)
    monkeypatch.setattr(compiling, "_last", 0.0)
    for number in range(2):
        with compiling.watch():
            jax.jit(lambda x, y=number: jnp.linalg.svd(x + y)[0] * 2)(jnp.ones((3, 3)))
    kept = jax.config.jax_compilation_cache_dir
    assert caplog.messages[0] == f"bytelax: compiling; programs are kept in {kept}"
    assert caplog.messages[-1].startswith("bytelax: compiling; the program before took ")


def test_other_programs_are_none(monkeypatch, caplog):
    monkeypatch.setattr(compiling, "PATIENCE", 60.0)
    with compiling.watch():
        jax.jit(lambda x: jnp.cos(x) * 3)(1.0)
    timers = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    assert all(one.finished.is_set() for one in timers) and not caplog.messages


@pytest.mark.parametrize(("asked", "times"), [(None, 1), ("0", 0)])
def test_missing_kernels_are_news_once(monkeypatch, caplog, asked, times):
    if jax.default_backend() != "cpu":
        pytest.skip("kernels for processors")
    monkeypatch.setattr(compiling.native, "why_not", lambda: "Not compiled: do this.")
    monkeypatch.delenv("BYTELAX_NATIVE", raising=False)
    if asked is not None:
        monkeypatch.setenv("BYTELAX_NATIVE", asked)
    compiling.say_without_kernels.cache_clear()
    model = bytelax.load("tiny-draft")
    bytelax.generate(model, ["x"], max_new_bytes=1)
    told = [line for line in caplog.messages if line.endswith("Not compiled: do this.")]
    assert len(told) == times
    compiling.say_without_kernels.cache_clear()
    bytelax.generate(model, ["x"], max_new_bytes=1)  # a model may be made by hand
    told = [line for line in caplog.messages if line.endswith("Not compiled: do this.")]
    assert len(told) == 2 * times
    compiling.say_without_kernels.cache_clear()


def settings_of_jax(monkeypatch, cache_dir=None):
    """A dict of what is set in JAX from now on, in place of JAX's own."""
    settings = {}
    config = types.SimpleNamespace(jax_compilation_cache_dir=cache_dir, update=settings.__setitem__)
    monkeypatch.setattr(compiling, "jax", types.SimpleNamespace(config=config))
    return settings


@pytest.mark.parametrize(
    ("variables", "set_before", "kept"),
    [
        ({}, None, "home/.cache/bytelax/programs"),
        ({"XDG_CACHE_HOME": "elsewhere"}, None, "elsewhere/bytelax/programs"),
        ({"BYTELAX_CACHE": "mine"}, None, "mine"),
        ({"BYTELAX_CACHE": "off"}, None, None),
        ({}, "of JAX", None),
    ],
)
def test_where_programs_are_kept(monkeypatch, tmp_path, variables, set_before, kept):
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "BYTELAX_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "home"} | variables).items():
        monkeypatch.setenv(name, value)
    settings = settings_of_jax(monkeypatch, set_before)
    compiling.keep_programs()
    assert settings.get("jax_compilation_cache_dir") == (kept and f"{kept}/{compiling.machine()}")


PROCESSOR = (
    "processor\t: 0\nmodel name\t: one\ncpu MHz\t\t: {}\nflags\t\t: fpu {}\n\nprocessor\t: 1\n"
)


def test_each_processor_and_jaxlib_has_programs_of_its_own(monkeypatch):
    """JAX would load those of another, and end where an instruction is missing."""

    def machine(mhz=1, flags="avx2", version="0.10.2"):
        monkeypatch.setattr(compiling.jaxlib.version, "__version__", version)
        about = PROCESSOR.format(mhz, flags)
        monkeypatch.setattr(compiling.Path, "read_text", lambda path: about)
        return compiling.machine()

    assert machine() == machine(mhz=2)
    assert len({machine(), machine(flags="avx2 avx512f"), machine(version="0.12.0")}) == 3


def test_a_cache_that_cannot_be_written_is_told_once(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("BYTELAX_CACHE", str(tmp_path / "file"))
    settings_of_jax(monkeypatch)
    with pytest.warns(UserWarning, match="compiled programs are not kept: .*file") as told:
        compiling.keep_programs()
    assert len(told) == 1


@pytest.mark.slow
def test_programs_that_do_not_load_as_they_should_are_no_news(tmp_path):
    """Such as XLA suspects to be of another processor, and such as are cut off."""
    text, score = tmp_path / "a.txt", [sys.executable, "-m", "bytelax", "score"]
    text.write_text("A text to score.")

    def run(cache):
        environment = os.environ | {"BYTELAX_CACHE": str(cache)}
        environment.pop("TF_CPP_MIN_LOG_LEVEL")  # which JAX has set in this process
        command = [*score, "--model", "tiny-lm", str(text)]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return ran.stdout, ran.stderr

    first = run(tmp_path / "cache")
    entries = [*(tmp_path / "cache").rglob("*-cache")]
    assert entries and not first[1]
    for entry in entries:
        program = zlib.decompress(entry.read_bytes())
        assert b"+64bit," in program or platform.machine() != "x86_64"
        entry.write_bytes(zlib.compress(program.replace(b"+64bit,", b"+99bit,")))
    assert run(tmp_path / "cache") == first
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:1000])
    assert run(tmp_path / "cache") == first
    (tmp_path / "file").touch()
    told, warned = run(tmp_path / "file")
    assert told == first[0] and warned.count("\n") == 1
