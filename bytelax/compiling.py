"""Compilation: measures its time, and caches compiled programs across processes."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax

CACHE_VARIABLE = "BYTELAX_CACHE"  # directory of compiled programs, or "off"
_here = threading.local()


class Compiling:
    """Records the time that this thread spends compiling within a `watch`."""

    def __init__(self):
        self._spans: list[tuple[float, float]] = []

    @property
    def seconds(self) -> float:
        """Total compile time in seconds, with nested spans counted once."""
        return sum(end - begin for begin, end in self._spans)

    def add(self, seconds: float) -> None:
        """Adds a span that ends now: a trace, a lowering or a compilation.

        Spans that lie within the new one are dropped, because traces are nested.
        """
        end = time.perf_counter()
        begin = end - seconds
        self._spans = [span for span in self._spans if span[0] < begin] + [(begin, end)]


@contextlib.contextmanager
def watch() -> Iterator[Compiling]:
    """Measures the seconds spent compiling in its body, from the events of `jax.monitoring`."""
    outer, _here.compiling = getattr(_here, "compiling", None), Compiling()
    try:
        yield _here.compiling
    finally:
        _here.compiling = outer


def _listen(event: str, duration_secs: float, **_) -> None:
    compiling = getattr(_here, "compiling", None)
    if compiling is not None and event.startswith("/jax/core/compile/"):
        compiling.add(duration_secs)


jax.monitoring.register_event_duration_secs_listener(_listen)


def keep_programs() -> None:
    """Caches compiled programs in the user's cache directory, so that later runs start faster.

    A cache directory set in JAX itself takes precedence. The environment variable BYTELAX_CACHE
    names another directory, or "off" to cache nothing.
    """
    where = os.environ.get(CACHE_VARIABLE, "")
    if where == "off" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    programs = where or Path(caches) / "bytelax" / "programs"
    jax.config.update("jax_compilation_cache_dir", str(programs))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
