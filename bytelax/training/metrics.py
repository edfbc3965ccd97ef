"""What a run tells about itself: JSON lines, TensorBoard, and the share of the device's peak."""

import contextlib
import functools
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
import rich.progress

from bytelax.pods import distributed

BITS_PER_BYTE = "bits_per_byte"  # the metric of an objective that ranks checkpoints

# Dense bfloat16 operations a second of one device as JAX counts them, from the vendors' data
# sheets. The first name that the device's kind contains counts.
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


# What a line of progress shows, where it is known.
_FIGURES = {
    "loss": "loss {:.4f}",
    BITS_PER_BYTE: "{:.4f} bits/byte",
    "latents_mean_cost": "mean latent +{:.3f}",
    "learning_rate": "rate {:.2e}",
    "gradient_norm": "norm {:.2f}",
    "bytes_per_second": "{:.0f} bytes/s",
    "peak_share": "{:.1%} of peak",
}


def means(metrics: Iterable[Mapping[str, tuple[Any, Any]]]) -> dict[str, float]:
    """Sums over counts of the metrics of several batches; what was never counted is left out.

    Args:
      metrics: name -> (sum, count), on the host or on devices.
    """
    totals: dict[str, np.ndarray] = {}
    for batch in jax.device_get(list(metrics)):
        for name, (total, count) in batch.items():
            pair = np.asarray([total, count], np.float64)
            totals[name] = totals.get(name, 0) + pair
    return {name: float(total / count) for name, (total, count) in totals.items() if count}


@functools.cache
def peak_flops(platform: str, kind: str) -> float | None:
    """Multiplications and additions a second that a device is sold as doing in bfloat16.

    A processor's is measured, as the best of a few float32 products. None for a device that is not
    in `PEAKS`.

    Args:
      platform: of a `jax.Device`.
      kind: its `device_kind`.
    """
    if platform == "cpu":
        return _measured()
    return next((peak for name, peak in PEAKS if name in kind), None)


def matmul_flops(jaxpr: Any) -> int:
    """Operations of all matrix products in a traced function, 2 a multiply-add.

    What is recomputed counts twice, the longest branch of a conditional counts, and a loop of
    unknown length counts once.

    Args:
      jaxpr: `jax.jit(f).trace(...).jaxpr`.
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return sum(_flops(equation) for equation in jaxpr.eqns)


class MetricsLog:
    """Appends to `metrics.jsonl` and `samples.jsonl` of a run, and to TensorBoard's files.

    TensorBoard is written where tensorboardX is installed. A disk that is full costs lines, with
    one message, and never the run. Of several processes the first one writes.
    """

    def __init__(
        self, directory: pathlib.Path, *, start: int, report: Callable[[str], None] = print
    ):
        """Opens the files of a run that goes on from step `start`: later lines are dropped."""
        self._directory = directory
        self._report = report
        self._failed = False
        self._board = None
        if not distributed.is_first():
            return
        for name in ("metrics.jsonl", "samples.jsonl"):
            _drop_after(directory / name, start)
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            return
        self._board = SummaryWriter(str(directory / "tensorboard"), purge_step=start + 1)

    def write(self, step: int, split: str, values: Mapping[str, float | None]) -> None:
        """One line `{"step": ..., "split": ..., ...}`; numbers that are not finite become null."""
        finite = {name: _finite(value) for name, value in values.items()}
        self._append("metrics.jsonl", {"step": step, "split": split, **finite})
        for name, value in finite.items():
            if value is not None:
                self._draw("add_scalar", f"{split}/{name}", value, step)

    def sample(self, step: int, prompt: str, text: str) -> None:
        """A continuation of a prompt by the model of this step."""
        self._append("samples.jsonl", {"step": step, "prompt": prompt, "text": text})
        self._draw("add_text", f"sample/{prompt}", text, step)

    def close(self) -> None:
        self._draw("close")

    def _append(self, name, line):
        if not distributed.is_first():
            return
        try:
            with open(self._directory / name, "a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._fail(error)

    def _draw(self, method, *args):
        try:
            if self._board is not None:
                getattr(self._board, method)(*args)
        except OSError as error:
            self._fail(error)

    def _fail(self, error):
        if not self._failed:
            self._report(f"metrics cannot be written, and training goes on: {error}")
        self._failed = True


class Clock:
    """Seconds of training, without validation, samples and checkpoints."""

    def __init__(self):
        self._begin = time.perf_counter()

    def lap(self, pending: Any) -> float:
        """Waits for the steps, and returns the seconds since the last lap."""
        jax.block_until_ready(pending[-1])
        now = time.perf_counter()
        seconds, self._begin = now - self._begin, now
        return max(seconds, 1e-9)

    @contextlib.contextmanager
    def paused(self):
        begin = time.perf_counter()
        yield
        self._begin += time.perf_counter() - begin


class Display:
    """A progress bar with the time left on a terminal, else a line now and then."""

    def __init__(self, steps: int, report: Callable[[str], None] | None = None):
        self._steps, self._report = steps, report
        console = rich.console.Console(stderr=True)
        self._bar = None
        if console.is_terminal and report is None and distributed.is_first():
            self._bar = rich.progress.Progress(
                rich.progress.TextColumn("step {task.completed}/{task.total}"),
                rich.progress.BarColumn(),
                rich.progress.TextColumn("{task.description}"),
                rich.progress.TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task("compiling", total=steps)
        self._first = None

    def __enter__(self):
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_):
        if self._bar is not None:
            self._bar.stop()

    def tell(self, message: str) -> None:
        if not distributed.is_first():
            return
        if self._report is not None:
            self._report(message)
        elif self._bar is not None:
            self._bar.console.print(message, markup=False, highlight=False)
        else:
            print(message, file=sys.stderr, flush=True)

    def show(self, step: int, values: Mapping[str, float | None], split: str = "train") -> None:
        """The figures of a step."""
        figures = [
            pattern.format(values[name])
            for name, pattern in _FIGURES.items()
            if values.get(name) is not None
        ]
        if self._bar is not None and split == "train":
            self._bar.update(self._task, completed=step, description="  ".join(figures))
            return
        left = "" if split != "train" else self._left(step)
        self.tell(f"step {step}/{self._steps} {split}: {'  '.join(figures)}{left}")

    def _left(self, step):
        now = time.perf_counter()
        if self._first is None:
            self._first = (step, now)
            return ""
        before, begin = self._first
        seconds = (now - begin) / (step - before) * (self._steps - step)
        return f"  {int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02} left"


def _drop_after(path, step):
    """Rewrites a file of JSON lines without those of later steps and one that was cut off."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, LookupError, TypeError, RecursionError):  # not a line of ours
            continue
    rewritten = path.with_suffix(".partial")
    rewritten.write_text("".join(kept))
    os.replace(rewritten, path)


def _finite(value):
    return value if value is not None and math.isfinite(value) else None


def _measured():
    size = 1024
    x = jnp.ones((size, size), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(x, x).block_until_ready()
    best = math.inf
    for _ in range(3):
        begin = time.perf_counter()
        product(x, x).block_until_ready()
        best = min(best, time.perf_counter() - begin)
    return 2 * size**3 / best


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
    inner = sum(matmul_flops(p) for p in params.values() if hasattr(p, "eqns"))
    return inner * (params["length"] if equation.primitive.name == "scan" else 1)
