"""Means of what an objective measures on held-out text."""

import jax
import numpy as np

from bytelax.training import data
from bytelax.training.configs import Source
from bytelax.training.data import DataConfig


def averages(objective, params: dict, batches) -> dict[str, float]:
    """Means of the metrics of an objective over batches i32[B, N + 1] of held-out text."""
    loss = jax.jit(objective.loss)
    total: dict[str, tuple[float, float]] = {}
    for index, ids in enumerate(batches):
        _, metrics = loss(params, ids, jax.random.key(index))
        for name, (value, count) in metrics.items():
            before = total.get(name, (0.0, 0.0))
            total[name] = before[0] + float(value), before[1] + float(count)
    return {name: value / count for name, (value, count) in total.items() if count}


def held_out(sources: tuple[Source, ...], batches: int, *, window: int, batch: int):
    """Batches of the validation text, picked at random."""
    config = DataConfig(sources, window=window, batch=batch, prefetch=0)
    found = [each.ids for each in data.batches(config, split="valid", start=0)]
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))[:batches]]
