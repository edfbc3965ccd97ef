"""The kernels in CUDA C++, compiled for the processor by `emulated.h` and called through XLA."""

import contextlib
import ctypes
import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

import jax
import pytest
from bytelax_kernels import cuda

ORDERS = [0, 1, 2, 3]  # of threads: in turn; the first, or the last, as far as it can; at random
_COMPILER = shutil.which(os.environ.get("CXX", "c++"))
_HERE, _PACKAGE = pathlib.Path(__file__).parent, pathlib.Path(cuda.__file__).parent
_SHARED = [(_PACKAGE, "gpu.h"), (_HERE, "emulated.h")]
EMULATED = pytest.param(
    "gpu", marks=pytest.mark.skipif(_COMPILER is None, reason="there is no C++ compiler")
)


class Fault(NamedTuple):
    """A kernel in which threads do not wait for one another at one place, or not long enough."""

    kernel: str
    line: int
    source: str


def faults(kernel: str) -> list:
    """The kernel without each of its barriers, and with a copy that is waited for too late."""
    source = (_PACKAGE / kernel / "gpu.cu").read_text()
    found = []
    for wait in re.finditer(
        r"(?:__syncthreads|cluster_barrier|wait_for_copies<(.*?)>)\(\)", source
    ):
        instead = f"wait_for_copies<{wait[1]} + 1>()" if wait[1] else "void()"
        line = source.count("\n", 0, wait.start()) + 1
        planted = source[: wait.start()] + instead + source[wait.end() :]
        found.append(pytest.param(Fault(kernel, line, planted), id=f"line {line}: {wait[0]}"))
    return found


@contextlib.contextmanager
def planted(fault: Fault):
    """Calls of the kernel in here are those of the faulty one."""
    own = ctypes.CDLL(str(_compiled(fault)))
    target, name = f"bytelax_{fault.kernel}_gpu", f"{fault.kernel} {fault.line}"
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(own, target)), platform="cpu")
    call = jax.ffi.ffi_call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.ffi, "ffi_call", lambda _, *results, **how: call(name, *results, **how))
        patch.setattr(sys.modules[__name__], "_library", lambda: own)
        jax.clear_caches()
        yield
    jax.clear_caches()


@contextlib.contextmanager
def on_gpu(order: int = 0, error: bytes | None = None):
    """Calls of the kernels in here run on the processor.

    Args:
      order: of the threads of a block, one of `ORDERS`.
      error: of the GPU, which then runs nothing.
    """
    _library().emulate_in_order(order)
    _library().emulate_error(error)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "why_not", lambda: None)
        yield


@functools.cache
def _library():
    library = ctypes.CDLL(str(_compiled()))
    cuda.register(library, "cpu")
    return library


def _compiled(fault: Fault | None = None) -> pathlib.Path:
    """The library of all kernels, or of a faulty one."""
    kernels = {name: (_PACKAGE / name / "gpu.cu").read_text() for name in cuda.FOLDERS}
    kernels = kernels if fault is None else {fault.kernel: fault.source}
    shared = [(path / name).read_text() for path, name in _SHARED]
    digest = hashlib.sha256("".join([*kernels.values(), *shared]).encode()).hexdigest()[:16]
    path = pathlib.Path(tempfile.gettempdir(), f"bytelax-emulated-{digest}.so")
    if not path.exists():  # other processes of the tests may compile it, too
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            folder = pathlib.Path(scratch)
            (folder / "gpu.h").write_text(shared[0])
            sources = [folder / name / "gpu.cu" for name in kernels]
            for source, text in zip(sources, kernels.values(), strict=True):
                source.parent.mkdir()
                source.write_text(text)
            made = folder / path.name
            flags = ["-O1", "-std=c++20", "-fPIC", "-shared", "-include", _HERE / "emulated.h"]
            flags += ["-isystem", jax.ffi.include_dir(), "-x", "c++"]
            subprocess.run([_COMPILER, *flags, *sources, "-o", made], check=True)
            made.rename(path)
    return path
