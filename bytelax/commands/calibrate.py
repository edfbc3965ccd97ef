"""`bytelax calibrate`: the entropy threshold that gives a wanted mean patch length."""

import dataclasses
import functools
import json
import os
import pathlib
from collections.abc import Callable
from typing import Annotated

import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Float, Int

from bytelax import checkpoints
from bytelax import config as plain
from bytelax.commands.json_line import json_line
from bytelax.commands.text_windows import text_windows
from bytelax.commands.train import model_directory
from bytelax.model import Model
from bytelax.models import architectures, patching
from bytelax.models.blt import BLTConfig
from bytelax.models.execution import EXACT
from bytelax.models.patching import PatchingConfig

_BATCH = 16  # windows at a time through the entropy model


@dataclasses.dataclass(frozen=True)
class Calibrate:
    """Find the entropy threshold at which patches of given text have a wanted mean length."""

    model: Annotated[str, tyro.conf.arg(aliases=["--patcher"])]
    """Directory of an entropy model or of a BLT that has one."""
    text: tuple[str, ...]
    """Files, directories or globs of .txt, .py, .jsonl or .tsv, plain or gzipped."""
    patch_length: float = 4.5
    """Wanted mean, in bytes."""
    max_patch_length: int | None = None
    """Longer patches are cut; by default as the BLT has it."""
    window: int = 1024
    """Bytes of text that the entropy model sees at once, as in training."""
    max_bytes: int = 2_000_000
    """Bytes of text to measure on, evenly spread."""
    write: bool = False
    """Write the threshold, and the longest patch if given, into the config of the BLT."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        directory = pathlib.Path(model_directory(self.model))
        config, params = checkpoints.read(directory)
        is_blt = isinstance(config, BLTConfig)
        if is_blt and config.patching.mode != "entropy":
            raise ValueError(f"{self.model} cuts patches by {config.patching.mode}, not by entropy")
        if self.write:
            _check_writable(directory, is_blt)
        rule = config.patching if is_blt else PatchingConfig()
        if self.max_patch_length is not None:
            rule = dataclasses.replace(rule, max_patch_length=self.max_patch_length)
        windows, lengths = text_windows(self.text, self.window, self.max_bytes)
        module = architectures.module_of(config)
        model = Model(module if is_blt else module.clone(execution=EXACT), params)
        found, mean = threshold(
            _entropies(model, windows), lengths, rule=rule, wanted=self.patch_length
        )
        rule = dataclasses.replace(rule, threshold=found)
        if self.write:
            _write(directory, rule)
        result = {
            "threshold": found, "patch_length": mean, "max_patch_length": rule.max_patch_length,
            "bytes": int(lengths.sum()),
        }  # fmt: skip
        if self.json:
            print(json_line(result))
            return
        print(f"threshold {found!r}: {mean:.3f} bytes a patch over {result['bytes']:,} bytes")


def threshold(
    entropies: Float[np.ndarray, "B S"],
    lengths: Int[np.ndarray, " B"],
    *,
    rule: PatchingConfig,
    wanted: float,
) -> tuple[float, float]:
    """The threshold whose mean patch length is the closest to the wanted one, and that length.

    The mean is a step function of the threshold that never falls, and changes only where the
    threshold crosses a value that the rule compares with it: bisection over those is exact. The
    threshold lies half-way between two of them, so that rounding moves no patch.

    Args:
      entropies: of texts, right-padded.
      lengths: their lengths.
      rule: its threshold is not used.
      wanted: bytes.

    Raises:
      ValueError: no threshold comes near: the wanted length is out of reach.
    """
    there = np.arange(entropies.shape[1]) < lengths[:, None]
    # At positions 0 and 1 the rule starts a patch in any case, or nearly so.
    compared = np.diff(entropies, axis=1, prepend=0) if rule.monotonicity else entropies
    values = np.unique(compared[there])
    between = (values[1:].astype(np.float64) + values[:-1]) / 2
    candidates = np.concatenate([[values[0] - 1.0], between, [values[-1] + 1.0]])

    @functools.cache
    def mean(index: int) -> float:
        return mean_patch_length(
            entropies, lengths, rule=dataclasses.replace(rule, threshold=float(candidates[index]))
        )

    top = len(candidates) - 1
    if not mean(0) <= wanted <= mean(top):
        raise ValueError(
            f"a mean patch length of {wanted} is out of reach: thresholds give {mean(0):.2f} to "
            f"{mean(top):.2f} on this text"
        )
    above = _first(lambda index: mean(index) >= wanted, top)
    best = min((above, max(above - 1, 0)), key=lambda index: abs(mean(index) - wanted))
    return float(candidates[best]), mean(best)


def mean_patch_length(
    entropies: Float[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], *, rule: PatchingConfig
) -> float:
    """Bytes over patches, the last one of each text included."""
    positions = jnp.broadcast_to(jnp.arange(entropies.shape[1]), entropies.shape)
    opened = patching.open_patches(
        patching.no_patch(len(entropies)), jnp.asarray(entropies), positions, config=rule
    )
    closes = patching.closing(opened, positions)
    inside = np.asarray(closes) & (np.arange(entropies.shape[1]) < lengths[:, None] - 1)
    return float(lengths.sum() / (inside.sum() + len(lengths)))


def _first(holds: Callable[[int], bool], top: int) -> int:
    """The first index to `top` at which a condition that then stays true is true."""
    low, high = 0, top
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _entropies(model, windows):
    found = []
    for begin in range(0, len(windows), _BATCH):
        rows = windows[begin : begin + _BATCH]
        padded = np.pad(rows, ((0, _BATCH - len(rows)), (0, 0)))  # one shape, compiled once
        found.append(np.asarray(model.entropies(jnp.asarray(padded)))[: len(rows)])
    return np.concatenate(found)


def _check_writable(directory, is_blt):
    if not is_blt:
        raise ValueError(
            "an entropy model alone has no threshold to write: "
            "give it to `bytelax train blt --model.patching.threshold`"
        )
    if checkpoints.detect(directory) != "orbax":
        raise ValueError(f"{directory} is not in bytelax's own layout: `bytelax convert` it first")


def _write(directory, rule):
    path = directory / "config.json"
    fields = plain.read_json(path)
    fields["config"]["patching"] |= dataclasses.asdict(rule)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(fields, indent=2) + "\n")
    os.replace(partial, path)
