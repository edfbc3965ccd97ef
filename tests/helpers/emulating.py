"""The kernels in CUDA C++, compiled for the processor by `emulated.h` and called through XLA."""

import contextlib
import ctypes
import functools
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import jax
import pytest
from bytelax_kernels import cuda

ORDERS = [0, 1, 2, 3]  # of threads: in turn; the first, or the last, as far as it can; at random
_COMPILER = shutil.which(os.environ.get("CXX", "c++"))
_HERE = pathlib.Path(__file__).parent
EMULATED = pytest.param(
    "gpu", marks=pytest.mark.skipif(_COMPILER is None, reason="there is no C++ compiler")
)


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
    package = pathlib.Path(cuda.__file__).parent
    sources = [package / kernel / "gpu.cu" for kernel in cuda.KERNELS]
    read = [*sources, package / "gpu.h", _HERE / "emulated.h"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in read)).hexdigest()[:16]
    path = pathlib.Path(tempfile.gettempdir(), f"bytelax-emulated-{digest}.so")
    if not path.exists():  # other processes of the tests may compile it, too
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = pathlib.Path(scratch, path.name)
            flags = ["-O1", "-std=c++20", "-fPIC", "-shared", "-include", _HERE / "emulated.h"]
            flags += ["-isystem", jax.ffi.include_dir(), "-x", "c++"]
            subprocess.run([_COMPILER, *flags, *sources, "-o", made], check=True)
            made.rename(path)
    library = ctypes.CDLL(str(path))
    cuda.register(library, "cpu")
    return library
