"""Logging of a training run: JSON lines, lines of progress, and device utilization."""

import contextlib
import datetime
import functools
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from bytelax.pods import distributed

BITS_PER_BYTE = "bits_per_byte"

# Dense bfloat16 FLOP/s of one device, as JAX counts devices, from the vendors' data sheets. The
# first name that is contained in the device kind applies.
PEAKS = (
    ("H200", 989e12),
    ("H100 PCIe", 756e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("L40S", 362e12),
    ("L4", 121e12),
    ("TPU v6", 918e12),
    ("TPU v5p", 459e12),
    ("TPU v5 lite", 197e12),
    ("TPU v5e", 197e12),
    ("TPU v5", 459e12),
    ("TPU v4", 275e12),
)


# How a line of progress shows a metric.
_FIGURES = {
    "loss": "loss {:.4f}",
    BITS_PER_BYTE: "{:.4f} bits/byte",
    "latents_mean_cost": "mean latent {:+.3f}",
    "learning_rate": "rate {:.2e}",
    "gradient_norm": "norm {:.2f}",
    "bytes_per_second": "{:.0f} bytes/s",
    "peak_share": "{:.1%} of peak",
    "dropped_patches": "{:.1f} patches per window dropped: raise max-patches",
}
_FAULTS = ("dropped_patches",)  # shown only if not 0


def means(metrics: Iterable[Mapping[str, tuple[Any, Any]]]) -> dict[str, float]:
    """Averages metrics over batches: the total sum divided by the total count of each.

    Metrics whose count is 0 are left out.

    Args:
      metrics: for each batch a dict of name to (sum, count), on the host or on devices.
    """
    totals: dict[str, np.ndarray] = {}
    for batch in jax.device_get(list(metrics)):
        for name, (total, count) in batch.items():
            pair = np.asarray([total, count], np.float64)
            totals[name] = totals.get(name, 0) + pair
    return {name: float(total / count) for name, (total, count) in totals.items() if count}


def peak_flops(kind: str) -> float | None:
    """The vendor's bfloat16 FLOP/s of a device, by its `device_kind`; None if not in `PEAKS`."""
    return next((peak for name, peak in PEAKS if name in kind), None)


def matmul_flops(jaxpr: Any) -> int:
    """Number of FLOPs of all matrix products in a traced function; a multiply-add counts as 2.

    Rematerialized products count twice, a conditional counts as its most expensive branch, and the
    body of a loop of unknown length counts once.

    Args:
      jaxpr: the traced function, from `jax.jit(f).trace(...).jaxpr`.
    """
    return sum(_flops(equation) for equation in jaxpr.eqns)


def write_line(path: pathlib.Path, step: int, split: str, values: Mapping[str, Any]) -> None:
    """Appends `{"step": ..., "split": ..., ...}` to a file; the first process only.

    Non-finite numbers become null.
    """
    if distributed.is_first():
        finite = {x: v if v is not None and math.isfinite(v) else None for x, v in values.items()}
        with open(path, "a") as file:
            file.write(json.dumps({"step": step, "split": split, **finite}) + "\n")


def drop_after(path: pathlib.Path, step: int) -> None:
    """Removes the lines of later steps, of a run that goes on from this one."""
    if distributed.is_first() and path.exists():
        lines = path.read_text().splitlines(keepends=True)
        whole = (line for line in lines if line.endswith("}\n"))
        path.write_text("".join(line for line in whole if json.loads(line)["step"] <= step))


class Clock:
    """Measures the time spent in training steps, without validation, samples and checkpoints."""

    def __init__(self):
        self._begin = time.perf_counter()

    def lap(self, pending: Any) -> float:
        """Blocks until the steps are done, and returns the seconds since the last lap."""
        jax.block_until_ready(pending[-1])
        now = time.perf_counter()
        seconds, self._begin = now - self._begin, now
        return max(seconds, 1e-9)

    @contextlib.contextmanager
    def paused(self):
        """A context whose time is not measured."""
        begin = time.perf_counter()
        yield
        self._begin += time.perf_counter() - begin


class Display:
    """Shows what a run does, line by line; the first process only.

    Args:
      steps: number of steps of the run.
      report: called with each line; by default it is printed to standard error.
    """

    def __init__(self, steps: int, report: Callable[[str], None] | None = None):
        self._steps = steps
        self._report = report or functools.partial(print, file=sys.stderr, flush=True)
        self._first: tuple[int, float] | None = None  # step and time of the first line

    def write(self, message: str) -> None:
        """Shows a message."""
        if distributed.is_first():
            self._report(message)

    def show(self, step: int, values: Mapping[str, float | None], split: str = "train") -> None:
        """Shows the metrics of a step, and with those of training the time that is left."""
        figures = [
            pattern.format(values[name])
            for name, pattern in _FIGURES.items()
            if values.get(name) is not None and (values[name] or name not in _FAULTS)
        ]
        if split == "train":
            now = time.perf_counter()
            before, begin = self._first = self._first or (step, now)
            if step > before:
                seconds = (now - begin) / (step - before) * (self._steps - step)
                figures.append(f"{datetime.timedelta(seconds=round(seconds))} left")
        self.write(f"step {step}/{self._steps} {split}: {'  '.join(figures)}")


def _flops(equation):
    params = equation.params
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return (
            2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)
        )
    if equation.primitive.name == "cond":
        return max(map(matmul_flops, params["branches"]))
    inner = sum(matmul_flops(p) for p in params.values() if isinstance(p, Jaxpr | ClosedJaxpr))
    return inner * (params["length"] if equation.primitive.name == "scan" else 1)
