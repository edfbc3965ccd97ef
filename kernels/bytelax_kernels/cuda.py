"""The compiled kernels for NVIDIA GPUs, called through `jax.ffi`; optional.

`pip install` compiles the library where it finds `nvcc`, and so does
`kernels/build_native.py` for a checkout. Where it is missing or does not load, XLA runs everything.
"""

import ctypes
import functools
import pathlib

from bytelax_kernels import native

LIBRARY = pathlib.Path(__file__).with_name("libbytelax_cuda.so")
FOLDERS = ("append_attention", "cross_attention", "dense")
KERNELS = ("append_attention", "cross_read", "cross_write", "dense")
SOURCES = ("gpu.h", "gpu.cu")


def why_not() -> str | None:
    """Why programs that are traced here call no such kernels; None if they do."""
    if native.are_left_out():
        return "the compiled kernels are left out"
    try:
        _registered()
    except native.Missing as missing:
        return str(missing)
    return None


@functools.cache
def _registered() -> None:
    """Registers the kernels with JAX.

    Raises:
      native.Missing: there is no library.
    """
    register(native.opened(LIBRARY, SOURCES, "nvcc on the path"), "CUDA")


def register(library: ctypes.CDLL, platform: str) -> None:
    """Lets programs for a platform, as XLA names it, call the kernels of a library."""
    import jax

    for name in KERNELS:
        handler = jax.ffi.pycapsule(getattr(library, f"bytelax_{name}_gpu"))
        jax.ffi.register_ffi_target(f"bytelax_{name}_gpu", handler, platform=platform)
