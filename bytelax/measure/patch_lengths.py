"""The mean length of patches, and the entropy threshold that gives it."""

import bisect
import dataclasses
import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bytelax.model import Model
from bytelax.models import patching
from bytelax.models.configs import PatchingConfig
from bytelax.training import documents, packing
from bytelax.training.configs import Source

_BATCH = 16  # number of windows in a batch of the entropy model


def entropies(model: Model, windows: Int[np.ndarray, "B S"]) -> Float[np.ndarray, "B S"]:
    """Returns the entropies of any number of windows, in nats; see `Model.entropies`."""
    found = []
    for begin in range(0, len(windows), _BATCH):
        rows = windows[begin : begin + _BATCH]
        padded = np.pad(rows, ((0, _BATCH - len(rows)), (0, 0)))  # one shape, compiled once
        found.append(np.asarray(model.entropies(padded))[: len(rows)])
    return np.concatenate(found)


def threshold(
    entropies: Float[np.ndarray, "B S"],
    lengths: Int[np.ndarray, " B"],
    *,
    rule: PatchingConfig,
    wanted: float,
) -> tuple[float, float]:
    """Finds the threshold whose mean patch length is closest to `wanted`, and returns both.

    The mean patch length is a non-decreasing step function of the threshold. It changes only where
    the threshold crosses a value that the rule compares with it, so bisection over those values is
    exact. The result is half-way between two of them, so that rounding moves no patch boundary.

    Args:
      entropies: entropies of right-padded texts, in nats.
      lengths: lengths of the texts.
      rule: the patching rule; its threshold is not used.
      wanted: target mean number of bytes per patch.

    Raises:
      ValueError: the target is outside the range that thresholds can reach.
    """
    there = np.arange(entropies.shape[1]) < lengths[:, None]
    # The rule forces the first patches, so the first values may decide nothing. That is harmless.
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
    above = bisect.bisect_left(range(top), wanted, key=mean)
    best = min((above, max(above - 1, 0)), key=lambda index: abs(mean(index) - wanted))
    return float(candidates[best]), mean(best)


def mean_patch_length(
    entropies: Float[np.ndarray, "B S"], lengths: Int[np.ndarray, " B"], *, rule: PatchingConfig
) -> float:
    """Mean number of bytes per patch, counting the last patch of each text.

    Args:
      entropies: entropies of right-padded texts, in nats.
      lengths: lengths of the texts.
      rule: the patching rule.
    """
    positions = jnp.broadcast_to(jnp.arange(entropies.shape[1]), entropies.shape)
    opened = patching.open_patches(
        patching.no_patch(len(entropies)), jnp.asarray(entropies), positions, config=rule
    )
    closes = patching.closing(opened, positions)
    inside = np.asarray(closes) & (np.arange(entropies.shape[1]) < lengths[:, None] - 1)
    return float(lengths.sum() / (inside.sum() + len(lengths)))


def text_windows(
    texts: Sequence[str], window: int, max_bytes: int
) -> tuple[Int[np.ndarray, "B {window}"], Int[np.ndarray, " B"]]:
    """Cuts text into windows, and returns an evenly spread sample of them and their lengths.

    The documents of each path are concatenated.

    Args:
      texts: files, directories or globs, as `bytelax.training.documents` reads them.
      window: number of ids in a window; the last window of a path is padded with BOE.
      max_bytes: approximate total number of bytes.

    Raises:
      ValueError: there is no path, or a path has no text.
    """
    if not texts:
        raise ValueError("no text is named: give a file, a directory or a pattern")
    kept = []
    for path in texts:
        train, _ = documents.load(Source(path), valid_fraction=0.0)
        if train.ids.size < 2:
            raise ValueError(f"{path}: there is no text in it")
        whole = packing.ValidWindows(train, window)
        kept += [whole[index][:window] for index in range(len(whole))]
    step = max(1, -(-len(kept) * window // max_bytes))
    windows = np.stack(kept[::step])
    return windows, (windows != packing.padding(window)[0]).sum(1)
