"""Compiling: its seconds, apart from those of running, and a cache that outlives the process."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax

CACHE_VARIABLE = "BYTELAX_CACHE"  # a directory for compiled programs, or "off"
_here = threading.local()


class Compiling:
    """What this thread has compiled within a `watch`."""

    def __init__(self):
        self._spans: list[tuple[float, float]] = []

    @property
    def seconds(self) -> float:
        return sum(end - begin for begin, end in self._spans)

    def add(self, seconds: float) -> None:
        """A span that ends now: a trace, a lowering or a compilation. Traces lie within traces."""
        end = time.perf_counter()
        begin = end - seconds
        self._spans = [span for span in self._spans if span[0] < begin] + [(begin, end)]


@contextlib.contextmanager
def watch() -> Iterator[Compiling]:
    """Counts the seconds that are spent compiling, by the events of `jax.monitoring`."""
    outer, _here.compiling = getattr(_here, "compiling", None), Compiling()
    try:
        yield _here.compiling
    finally:
        _here.compiling = outer


def _listen(event: str, seconds: float, **_) -> None:
    compiling = getattr(_here, "compiling", None)
    if compiling is not None and event.startswith("/jax/core/compile/"):
        compiling.add(seconds)


jax.monitoring.register_event_duration_secs_listener(_listen)


def keep_programs() -> None:
    """Keeps compiled programs in the user's cache directory, so that the next run starts at once.

    JAX's own settings take precedence. The environment variable BYTELAX_CACHE names another
    directory; "off" keeps nothing.
    """
    where = os.environ.get(CACHE_VARIABLE, "")
    if where == "off" or jax.config.jax_compilation_cache_dir is not None:
        return
    if not where:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        where = Path(caches) / "bytelax" / "programs"
    jax.config.update("jax_compilation_cache_dir", str(where))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
