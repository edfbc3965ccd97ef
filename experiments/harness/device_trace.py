"""What a device executes and how long that takes, in a trace of JAX's profiler."""

import collections
import pathlib
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import jax


class Operations(NamedTuple):
    """Operations of one name. Equal kernels of other shapes have a number in their names."""

    count: int
    microseconds: float


def operations(run: Callable[[], object]) -> dict[str, Operations]:
    """The operations that devices execute while `run` runs, by kind; call it once before.

    On a GPU an operation is a kernel or a copy, on a TPU an instruction of XLA, on a CPU a thunk.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory, profiler_options=options):
            run()
        (path,) = pathlib.Path(directory).rglob("*.xplane.pb")
        return read(jax.profiler.ProfileData.from_file(str(path)))


def read(data: jax.profiler.ProfileData) -> dict[str, Operations]:
    """The operations in a trace, those that take the most time first."""
    planes = list(data.planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    lines = [line for plane in devices or planes for line in plane.lines]
    if devices:
        # A GPU has a line for each stream; a TPU's other lines hold steps and whole programs.
        lines = [line for line in lines if line.name.startswith(("Stream", "XLA Ops"))]
    durations = collections.defaultdict(list)
    for line in lines:
        for event in line.events:
            if devices or "hlo_module" in dict(event.stats):
                durations[event.name].append(event.duration_ns / 1e3)
    kinds = {kind: Operations(len(own), sum(own)) for kind, own in durations.items()}
    return dict(sorted(kinds.items(), key=lambda item: -item[1].microseconds))
