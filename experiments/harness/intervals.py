"""Intervals by resampling: what a figure would be with other prompts of the same kind."""

from collections.abc import Sequence

import numpy as np

RESAMPLES, OUTSIDE = 2000, 5.0  # bootstrap resamples; per cent outside the interval


def of_ratio(above: Sequence[float], below: Sequence[float]) -> dict | None:
    """The ratio of two sums over prompts, with its 95 % bootstrap interval over prompts.

    Args:
      above: the numerator of each prompt, such as its bytes.
      below: the denominator, such as its rounds.

    Returns:
      `value`, and `interval` as [low, high]; None if the denominators are 0.
    """
    top, bottom = np.asarray(above, float), np.asarray(below, float)
    if not bottom.sum():
        return None
    picked = np.random.default_rng(0).integers(len(top), size=(RESAMPLES, len(top)))
    sums = bottom[picked].sum(1)
    ratios = top[picked].sum(1)[sums > 0] / sums[sums > 0]
    interval = np.percentile(ratios, [OUTSIDE / 2, 100 - OUTSIDE / 2])
    return {"value": float(top.sum() / bottom.sum()), "interval": interval.tolist()}
