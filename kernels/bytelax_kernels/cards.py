"""Which NVIDIA GPUs a program may run on, by their compute capability."""

import contextlib
import contextvars
from collections.abc import Collection, Iterator

import jax

HOPPER = ("9.0",)  # H100, H200: the only ones that have the instructions `wgmma`
# Those whose thread blocks may use 160 KB of shared memory and more: A100, Hopper, B200.
LARGE = ("8.0", "9.0", "10.0", "10.3")

_only: contextvars.ContextVar[str | None] = contextvars.ContextVar("card", default=None)


@contextlib.contextmanager
def traced_for(capability: str) -> Iterator[None]:
    """A context in which programs are traced for GPUs of one compute capability, such as "8.0"."""
    token = _only.set(capability)
    try:
        yield
    finally:
        _only.reset(token)


def are(capabilities: Collection[str]) -> bool:
    """Whether every GPU that a program is traced for has one of these compute capabilities.

    These are the GPUs of `traced_for`, or of this process. Where there are none, a program is
    compiled ahead of time, for a Hopper.
    """
    return all(capability in capabilities for capability in present())


def present() -> list[str]:
    """The compute capabilities of the GPUs of `traced_for`, or of this process."""
    if only := _only.get():
        return [only]
    try:
        devices = jax.local_devices(backend="gpu")
    except RuntimeError:
        return []
    return [getattr(device, "compute_capability", "") for device in devices]
