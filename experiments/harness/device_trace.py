"""Counts what a device executes, in a trace of JAX's profiler."""

import pathlib
import tempfile
from collections.abc import Callable

import jax


def operations(run: Callable[[], object]) -> int:
    """Counts the operations that devices execute while `run` runs; call it once before.

    On a GPU an operation is a kernel or a copy, on a TPU an instruction of XLA, on a CPU a thunk.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory, profiler_options=options):
            run()
        (path,) = pathlib.Path(directory).rglob("*.xplane.pb")
        return count(jax.profiler.ProfileData.from_file(str(path)))


def count(data: jax.profiler.ProfileData) -> int:
    """Counts the operations in a trace."""
    planes = list(data.planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    lines = [line for plane in devices or planes for line in plane.lines]
    if devices:
        # A GPU has a line for each stream; a TPU's other lines hold steps and whole programs.
        lines = [line for line in lines if line.name.startswith(("Stream", "XLA Ops"))]
        return sum(1 for line in lines for _ in line.events)
    return sum("hlo_module" in dict(event.stats) for line in lines for event in line.events)
