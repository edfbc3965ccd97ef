"""How programs are traced and compiled, whatever the caller has set in JAX; and their cache."""

import contextlib
import functools
import hashlib
import logging
import os
import platform
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
from bytelax_kernels import native
from jaxtyping import Array, Key


@contextlib.contextmanager
def own_settings() -> Iterator[None]:
    """Traces programs in types of 32 bits, with JAX's default promotion and its default Threefry.

    A context manager and a decorator. Whatever runs within is the same program with
    `jax_enable_x64`, with `jax_numpy_dtype_promotion="strict"`, with
    `jax_numpy_rank_promotion="raise"` and with `jax_threefry_partitionable=False`, which draws
    other numbers from a key; in the caller's own `jax.jit` too.
    """
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.threefry_partitionable(True),
    ):
        yield


def random_key(seed: Any) -> Key[Array, ""]:
    """Creates a key of Threefry, whatever `jax_default_prng_impl` says.

    Under `jax.vmap` the generator "rbg", which is usual on TPUs, draws the numbers of all rows from
    the first row's key.

    Args:
      seed: a number of 0..2**32 - 1, or a scalar array of it.
    """
    return jax.random.key(seed, impl="threefry2x32")


_WITHOUT_YNNPACK = {"xla_cpu_experimental_ynn_fusion_type": ""}


@functools.cache
def compiler_options() -> dict[str, str] | None:
    """Compiler options for programs that decode, score or train; None where there are none to set.

    XLA:CPU delegates products and reductions to YNNPACK, with two consequences:

    - The order of a sum depends on what else a program returns: with jaxlib 0.10.2 and 0.12 the
      last layer of 32 prompts differs in its last bits if its states are returned, too. A method
      that drafts from these states would differ from plain decoding.
    - In jaxlib 0.10.2 the results of some programs with more than 32,768 rows are wrong
      (jax-ml/jax#39103, fixed in 0.12). In tests of bytelax's models, logits were correct up to
      76,800 positions, and losses and gradients up to 77,400 targets.

    These options leave it out; `experiments/studies/native.py` times what is left.
    """
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(lambda: 0, compiler_options=_WITHOUT_YNNPACK)()
    except jax.errors.JaxRuntimeError:
        return None  # a version of XLA without this option
    return _WITHOUT_YNNPACK


def own_jit(function: Callable, **how: Any) -> Any:
    """Returns `jax.jit(function, **how)` with the compiler options of `generate` and `score`."""
    return jax.jit(function, compiler_options=compiler_options(), **how)


def late_jit(function: Callable, **how: Any) -> Callable[[], Any]:
    """Returns a function that gives `own_jit(function, **how)`, made when it is first called.

    The compiler options ask for the backend, which is not to be chosen by an import.
    """
    return functools.cache(lambda: own_jit(function, **how))


@functools.cache
def say_without_kernels() -> None:
    """Logs once that there are no compiled kernels, unless they were left out on purpose."""
    reason = native.why_not()
    if reason is not None and os.environ.get("BYTELAX_NATIVE") != "0":
        what = "bytelax: without compiled kernels, in bfloat16 at a fraction of the speed"
        logging.getLogger("bytelax").warning("%s. %s", what, reason)


CACHE_VARIABLE = "BYTELAX_CACHE"  # directory of compiled programs, or "off"
_LEAST = 0.1  # seconds of compiling; all programs below take 0.1 s of a start together
# Lines of /proc/cpuinfo that do not change with time, of x86 and of ARM.
_OF_THE_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU", "Features")
PATIENCE = 1.0  # seconds after which a line says that a program compiles
_EVENTS = "/jax/core/compile/"

_last = 0.0  # seconds that the last program took whose line was due
_log = logging.getLogger(__name__)


class _Here(threading.local):
    """What a thread measures now."""

    compiling: "Compiling | None" = None


_here = _Here()


class Compiling:
    """Records the time that this thread spends compiling within a `watch`, and logs a long one."""

    def __init__(self):
        self._spans: list[tuple[float, float]] = []
        self._said: threading.Timer | None = None

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

    def begin(self) -> None:
        """Logs a line when XLA has compiled for `PATIENCE` seconds."""
        self.end()
        where = getattr(jax.config, "jax_compilation_cache_dir", None)
        before = f"; programs are kept in {where}" if where else ""
        if _last:
            before = f"; the program before took {_last:.0f} s"
        self._said = threading.Timer(PATIENCE, _log.warning, [f"bytelax: compiling{before}"])
        self._said.daemon = True
        self._said.start()

    def end(self) -> None:
        """Logs nothing more."""
        if self._said is not None:
            self._said.cancel()


@contextlib.contextmanager
def watch() -> Iterator[Compiling]:
    """Measures the seconds spent compiling in its body, from the events of `jax.monitoring`."""
    outer, _here.compiling = _here.compiling, Compiling()
    try:
        yield _here.compiling
    finally:
        _here.compiling.end()
        _here.compiling = outer


def _listen(event: str, duration_secs: float, **_) -> None:
    global _last
    compiling = _here.compiling
    if compiling is None or not event.startswith(_EVENTS):
        return
    compiling.add(duration_secs)
    if event == f"{_EVENTS}jaxpr_to_mlir_module_duration":  # XLA compiles next
        compiling.begin()
    elif event == f"{_EVENTS}backend_compile_duration":
        compiling.end()
        _last = duration_secs if duration_secs > PATIENCE else _last


jax.monitoring.register_event_duration_secs_listener(_listen)


def keep_programs() -> None:
    """Caches compiled programs in the user's cache directory, so that later processes start faster.

    A cache directory set in JAX itself takes precedence. The environment variable BYTELAX_CACHE
    names another directory, or "off" to cache nothing. Each version of jaxlib on each processor has
    a directory of its own in it: JAX would also load programs of another processor, whose
    instructions this one may lack. Programs that cannot be read are compiled. If none can be
    written, there is one warning, where JAX would warn of every program.
    """
    where = os.environ.get(CACHE_VARIABLE, "")
    # The names of settings are not in the type of `jax.config`.
    if where == "off" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    programs = (Path(where) if where else user_cache() / "programs") / machine()
    try:
        programs.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=programs).close()
    except OSError as error:
        warnings.warn(f"compiled programs are not kept: {error}", stacklevel=2)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
    jax.config.update("jax_compilation_cache_dir", str(programs))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST)


def user_cache() -> Path:
    """Returns the directory in which bytelax keeps what it found on this machine for its user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bytelax"


def machine() -> str:
    """Returns the version of jaxlib, with a digest of the processor and its instructions."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        about = [line for line in first if line.startswith(_OF_THE_PROCESSOR)]
    except OSError:  # not Linux
        about = [platform.machine(), platform.processor()]
    digest = hashlib.sha256("\n".join(about).encode()).hexdigest()
    return f"jaxlib-{jaxlib.version.__version__}-{digest[:12]}"
