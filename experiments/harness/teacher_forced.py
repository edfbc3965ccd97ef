"""What drafting heads say of real text, position by position, beside what the model says."""

import jax
import numpy as np

from bytelax.training import data
from bytelax.training.configs import Source
from bytelax.training.data import DataConfig
from bytelax.training.head_objective import HeadLoss


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


def of_heads(model, batches, *, max_patches: int | None = None, steps: int = 8) -> dict[str, dict]:
    """Agreement and overlap of every head of a model, by its place in the draft.

    Args:
      model: a model with heads.
      batches: from `held_out`.
      max_patches: room for the patches of a text.
      steps: number of bytes that a draft layer drafts on its own outputs.

    Returns:
      for each kind of head its `agreed` and `overlap`, lists by place in the draft. A place is
      given the text before it, so it is the acceptance of a byte whose predecessors were accepted.
    """
    objective = HeadLoss(model.module, own_outputs=steps, max_patches=max_patches)
    found: dict[str, dict] = {}
    for name, value in averages(objective, model.params, batches).items():
        what, _, head = name.partition("_")
        kind, _, _place = head.rpartition("_")
        if what in ("agreed", "overlap"):
            found.setdefault(kind, {"agreed": [], "overlap": []})[what].append(value)
    return found
