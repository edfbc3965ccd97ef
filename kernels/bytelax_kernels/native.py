"""The compiled kernels for processors, called through `jax.ffi`; optional.

`pip install` compiles the library where there is a C++ compiler, and so does
`kernels/build_native.py` for a checkout. Where it is missing or does not load, XLA runs everything.
`BYTELAX_NATIVE=0` leaves it out, and the name of an instruction set, such as `BYTELAX_NATIVE=avx2`,
chooses another one than the best.
"""

import contextlib
import contextvars
import ctypes
import functools
import hashlib
import importlib.util
import os
import pathlib
import platform
import re
import sys
from collections.abc import Iterator

_LIBRARY = pathlib.Path(__file__).with_name("libbytelax.so")
_KERNELS = ("append_attention", "dense", "verify_attention")
SOURCES = ("native.h", "cpu.h", "cpu.cc")
_MAJOR = 0  # of the interface to XLA that the sources are written for


_left_out: contextvars.ContextVar[bool] = contextvars.ContextVar("left_out", default=False)


class Missing(Exception):
    """There are no compiled kernels, for the reason in the message."""


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """A context in which programs are traced without the compiled kernels."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


def are_left_out() -> bool:
    """Whether this is inside of `left_out`."""
    return _left_out.get()


def available() -> bool:
    """Whether programs that are traced here call the compiled kernels."""
    try:
        instructions()
    except Missing:
        return False
    return not _left_out.get()


def multiply_bfloat16() -> bool:
    """Whether the compiled kernels multiply bfloat16 as it is; elsewhere they widen it first."""
    return available() and instructions() in ("amx", "avx512bf16")


def why_not() -> str | None:
    """Why there are no compiled kernels, in a sentence; None if there are. Needs no JAX."""
    try:
        _loaded()
    except Missing as missing:
        return str(missing)
    return None


@functools.cache
def instructions() -> str:
    """Registers the kernels, and returns the instruction set that they use.

    Raises:
      Missing: there is no library, or none for this processor.
    """
    import jax

    library, name = _loaded()
    for kernel in _KERNELS:
        handler = jax.ffi.pycapsule(getattr(library, f"bytelax_{kernel}_{name}"))
        jax.ffi.register_ffi_target(f"bytelax_{kernel}", handler, platform="cpu")
    return name


def _loaded() -> tuple[ctypes.CDLL, str]:
    """The library and the instruction set to use; needs no JAX."""
    if sys.platform == "win32":
        raise Missing("There are none for Windows.")
    library = opened(_LIBRARY, SOURCES, "a C++ compiler")
    try:
        name = _best(library)
        for kernel in _KERNELS:
            getattr(library, f"bytelax_{kernel}_{name}")
    except (AttributeError, ValueError) as error:
        raise Missing(f"The compiled kernels do not load: {error}.") from error
    return library, name


def opened(path: pathlib.Path, kinds: tuple[str, ...], compiler: str) -> ctypes.CDLL:
    """Loads a library of compiled kernels; needs no JAX.

    Args:
      path: of the library.
      kinds: as in `sources`.
      compiler: what compiles it, in words.

    Raises:
      Missing: it is left out, not there, or made for something else.
    """
    if os.environ.get("BYTELAX_NATIVE") == "0":
        raise Missing("BYTELAX_NATIVE=0 leaves the compiled kernels out.")
    if not path.exists():
        raise Missing(f"Not compiled: {_advice(compiler)}.")
    try:
        library = ctypes.CDLL(str(path))
        compiled_for = ctypes.c_int.in_dll(library, "bytelax_interface").value
        compiled_from = ctypes.c_char_p.in_dll(library, "bytelax_sources").value
    except (OSError, ValueError) as error:
        raise Missing(f"The compiled kernels do not load: {error}.") from error
    # XLA's processor backend does not start once it was given kernels of a later interface.
    major, minor = _interface()
    if major != _MAJOR:
        raise Missing("This jaxlib has another interface for kernels: update bytelax.")
    if compiled_for > minor:
        raise Missing(f"Compiled for a newer jaxlib: {_advice(compiler)}.")
    if compiled_from != sources(kinds).encode():
        raise Missing(f"Compiled from other sources: {_advice(compiler)}.")
    return library


def _advice(compiler: str) -> str:
    """How to compile the kernels of this installation; the script is a checkout's."""
    script = _LIBRARY.parent.with_name("build_native.py")
    if script.exists():
        return f"run {script}, which takes minutes"
    return f"install {compiler}, then `pip install --force-reinstall --no-deps .` in a checkout"


def sources(kinds: tuple[str, ...]) -> str:
    """A digest of C++ sources. A library keeps its own, and runs only if they are equal.

    Args:
      kinds: how the names of the files end.
    """
    package = _LIBRARY.parent
    files = sorted(path for kind in kinds for path in package.rglob(f"*{kind}"))
    return hashlib.sha256(b"".join(map(pathlib.Path.read_bytes, files))).hexdigest()[:16]


def headers() -> pathlib.Path:
    """The directory of the headers in jaxlib, found without importing it."""
    found = importlib.util.find_spec("jaxlib")
    if found is None or found.origin is None:
        raise Missing("There is no jaxlib.")
    return pathlib.Path(found.origin).parent / "include"


def _interface() -> tuple[int, int]:
    """The version of XLA's interface in this jaxlib; libraries for earlier minor ones load too."""
    try:
        header = (headers() / "xla" / "ffi" / "api" / "c_api.h").read_text()
    except OSError as error:
        raise Missing(f"This jaxlib does not say which kernels it takes: {error}.") from error
    major, minor = re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", header)
    return int(major), int(minor)


def _best(library: ctypes.CDLL) -> str:
    """The best instruction set that this processor and the library have, or the requested one."""
    try:
        flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    there = {
        "amx": {"amx_tile", "amx_bf16", "avx512f"} <= flags and _may_use_tiles(library),
        "avx512bf16": {"avx512_bf16", "avx512f"} <= flags,
        "avx512": "avx512f" in flags,
        "avx2": {"avx2", "fma"} <= flags,
        "neon": platform.machine() in ("aarch64", "arm64"),
    }
    # An older compiler has left out what it does not know.
    compiled = {name for name in there if hasattr(library, f"bytelax_{_KERNELS[0]}_{name}")}
    found = [name for name in there if there[name] and name in compiled]
    if not found:
        raise Missing("The compiled kernels need AVX2, AVX-512 or NEON.")
    asked = os.environ.get("BYTELAX_NATIVE")
    if asked in (None, "", "1"):
        return found[0]
    if asked not in found:
        raise Missing(f"BYTELAX_NATIVE={asked} is none of 0, {', '.join(found)}.")
    return asked


def _may_use_tiles(library: ctypes.CDLL) -> bool:
    """Whether the library multiplies in tiles, and Linux lets this process do so."""
    return hasattr(library, "bytelax_ask_for_tiles") and library.bytelax_ask_for_tiles() == 0
