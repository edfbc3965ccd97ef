"""Which kernels an NVIDIA GPU runs: those whose backend this jax has, and knows the card.

XLA runs everything else; `report` lists it.
"""

import contextlib
import contextvars
import functools
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bytelax_kernels import cuda


class Backend(NamedTuple):
    """What compiles kernels for GPUs.

    Attributes:
      lacking: function that returns what it lacks here, whatever the card; None if it is there.
      capabilities: the compute capabilities of the cards that the kernels run on.
      cards: those cards, in words.
      kernels: names of the kernels.
    """

    lacking: Callable[[], str | None]
    capabilities: tuple[str, ...]
    cards: str
    kernels: tuple[str, ...]


@functools.cache
def without(module: str) -> str | None:
    """A message if this jax has no such module; None if it has."""
    return f"this jax has no {module}" if importlib.util.find_spec(module) is None else None


# The kernels multiply by `wgmma`, which other cards do not have.
MOSAIC = Backend(
    functools.partial(without, "jax.experimental.pallas.mosaic_gpu"),
    ("9.0",),
    "H100 and H200",
    ("verify_attention", "unmask"),
)
# The kernels use clusters of thread blocks, and 227 KB of shared memory.
CUDA = Backend(
    lambda: cuda.why_not(),
    ("9.0", "10.0", "10.3"),
    "H100, H200, B200 and B300",
    cuda.KERNELS,
)
BACKENDS = (MOSAIC, CUDA)

_only: contextvars.ContextVar[str | None] = contextvars.ContextVar("capability", default=None)


@contextlib.contextmanager
def traced_for(capability: str) -> Iterator[None]:
    """A context in which programs are traced for GPUs of one compute capability, such as "8.0"."""
    token = _only.set(capability)
    try:
        yield
    finally:
        _only.reset(token)


def why_not(backend: Backend, capability: str) -> str | None:
    """Why a card with this compute capability runs no kernel of a backend; None if it does."""
    if capability not in backend.capabilities:
        return f"the kernels are for {backend.cards}"
    return backend.lacking()


def run(backend: Backend) -> bool:
    """Whether the GPUs that a program is traced for run the kernels of a backend.

    These are the GPUs of `traced_for`, or of this process. Where there are none, a program is
    compiled ahead of time, for a Hopper.
    """
    found = [only] if (only := _only.get()) else map(_capability, _devices())
    known = all(capability in backend.capabilities for capability in found)
    return known and backend.lacking() is None


def report() -> list[str]:
    """A line for each GPU: the kernels that it runs, and why not the others.

    Imports JAX only where there is the driver of a GPU.
    """
    if shutil.which("nvidia-smi") is None:
        return []
    devices = _devices()
    if not devices:
        return ["On an NVIDIA GPU: JAX finds none; pip install 'jax[cuda13]' is for them."]
    return [f"On {device.device_kind}: {_summary(_capability(device))}" for device in devices]


def _summary(capability):
    """What a card with this compute capability runs."""
    reasons = {backend: why_not(backend, capability) for backend in BACKENDS}
    run = [name for backend, reason in reasons.items() if not reason for name in backend.kernels]
    parts = [f"kernels for {', '.join(run)}."] if run else []
    for backend, reason in reasons.items():
        if reason:
            parts.append(f"XLA runs {', '.join(backend.kernels)}: {reason}.")
    return " ".join(parts)


def _devices():
    import jax

    try:
        return jax.local_devices(backend="gpu")
    except RuntimeError:
        return []


def _capability(device):
    return getattr(device, "compute_capability", "")
