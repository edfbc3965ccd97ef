"""Logging of a training run: JSON lines, lines of progress, and device utilization."""

import contextlib
import datetime
import json
import math
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from bytelax.pods import distributed

PATIENCE = 15.0  # seconds without a line of progress
BITS_PER_BYTE = "bits_per_byte"  # the metric by which checkpoints are ranked

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


# What a line of progress shows, for the metrics that are known.
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
_FAULTS = ("dropped_patches",)  # shown only if they are not 0


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


class MetricsLog:
    """Appends to `metrics.jsonl` of a run.

    A full disk loses lines, with a single message, but never stops the run. Only the first process
    writes.
    """

    def __init__(
        self, directory: pathlib.Path, *, start: int, report: Callable[[str], None] = print
    ):
        """Opens the file of a run that continues from step `start`, and drops later lines."""
        self._path = directory / "metrics.jsonl"
        self._report = report
        self._failed = False
        if distributed.is_first():
            _drop_after(self._path, start)

    def write(self, step: int, split: str, values: Mapping[str, float | None]) -> None:
        """Appends a line `{"step": ..., "split": ..., ...}`; non-finite numbers become null."""
        if not distributed.is_first():
            return
        finite = {name: _finite(value) for name, value in values.items()}
        try:
            with open(self._path, "a") as file:
                file.write(json.dumps({"step": step, "split": split, **finite}) + "\n")
        except OSError as error:
            if not self._failed:
                self._report(f"metrics cannot be written, and training goes on: {error}")
            self._failed = True


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
        self._steps, self._report = steps, report
        self._first: tuple[int, float] | None = None  # step and time of the first line
        self._told = time.perf_counter()  # when the last line was shown

    def tell(self, message: str) -> None:
        """Shows a message."""
        self._told = time.perf_counter()
        if not distributed.is_first():
            return
        if self._report is not None:
            self._report(message)
        else:
            print(message, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Shows what the body does, and again from time to time until it is done."""
        begin, done = time.perf_counter(), threading.Event()

        def repeat():
            while not done.wait(PATIENCE):
                self.tell(f"still {what}, for {time.perf_counter() - begin:.0f} s")

        self.tell(f"{what}, once")
        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def pulse(self, step: int) -> None:
        """Shows that a step is done, and the time left, if no line was shown for a while."""
        if time.perf_counter() - self._told > PATIENCE:
            self.tell("  ".join([f"step {step}/{self._steps}", *self._left(step)]))

    def show(self, step: int, values: Mapping[str, float | None], split: str = "train") -> None:
        """Shows the metrics of a step, and beside those of training the time that is left."""
        figures = [
            pattern.format(values[name])
            for name, pattern in _FIGURES.items()
            if values.get(name) is not None and (values[name] or name not in _FAULTS)
        ]
        if split == "train":
            figures += self._left(step)
        self.tell(f"step {step}/{self._steps} {split}: {'  '.join(figures)}")

    def _left(self, step):
        now = time.perf_counter()
        if self._first is None:
            self._first = (step, now)
            return []
        before, begin = self._first
        seconds = (now - begin) / (step - before) * (self._steps - step)
        return [f"{datetime.timedelta(seconds=round(seconds))} left"]


def _drop_after(path, step):
    """Rewrites a file of JSON lines without lines of later steps or incomplete lines."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, LookupError, TypeError, RecursionError):  # cut off, or not written here
            continue
    rewritten = path.with_suffix(".partial")
    rewritten.write_text("".join(kept))
    os.replace(rewritten, path)


def _finite(value):
    return value if value is not None and math.isfinite(value) else None


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
