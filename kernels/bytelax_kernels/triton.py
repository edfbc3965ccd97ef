"""The Triton backend of Pallas, which JAX has deprecated in 0.11 and will remove.

It lowers the small kernels of GPUs. Where it is gone, XLA runs what they replace.
"""

import importlib.util
import warnings
from collections.abc import Callable

import jax

from bytelax_kernels.dispatch import Kernel, inference_only

_DEPRECATED = "The Pallas Triton backend is deprecated"
# Of the NVIDIA GPUs whose thread blocks may use 160 KB of shared memory and more: A100, H100 and
# H200, B200. Others have less, or no backend.
_CAPABLE = ("8.0", "9.0", "10.0", "10.3")


def kernel(load: Callable[[], tuple[Callable, Callable]]) -> Kernel:
    """The kernel of a module with `takes` and `run`; one that takes nothing where it cannot run.

    Args:
      load: function that imports the module and returns its `takes` and its `run`.
    """
    if importlib.util.find_spec("jax.experimental.pallas.triton") is None or not _capable():
        return Kernel(lambda inputs: False, lambda inputs: inputs)
    warnings.filterwarnings("ignore", message=_DEPRECATED, category=DeprecationWarning)
    takes, run = load()
    return Kernel(takes, inference_only(run))


def _capable() -> bool:
    """Whether the GPU is one of these, or there is none and a program is compiled for another."""
    try:
        devices = jax.local_devices(backend="gpu")
    except RuntimeError:
        return True
    return all(getattr(device, "compute_capability", "") in _CAPABLE for device in devices)
