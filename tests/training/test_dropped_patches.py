"""Patches that find no room in a pass are counted, and the line of progress says so."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.training import runs
from bytelax.training.head_objective import HeadLoss
from bytelax.training.objectives import BLTD, NextByte
from tests.helpers import heads_of_a_blt, tiny_runs
from tests.helpers import models_for_tests as models

LENGTH = 24
ROOM = 3


def batches(split, start):
    """The same two texts of three byte values over and over."""
    text = models.random_text(2, LENGTH + 1, eos=False) % 3 + vocab.OFFSET
    while True:
        yield np.asarray(text, np.int32)


def dropped(ids):
    """The mean number of patches beyond the room, counted in the model's own division."""
    model = heads_of_a_blt.with_block_table()
    _, closes = jax.jit(
        lambda params: model.module.apply(
            {"params": params}, jnp.asarray(ids[:, :-1]), method="predict"
        )
    )(model.params)
    return np.maximum(np.asarray(closes).sum(1) - ROOM, 0).mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "room"), [(HeadLoss, ROOM), (NextByte, ROOM), (BLTD, ROOM), (NextByte, None)]
)
def test_what_is_dropped_is_told(objective, room, tmp_path):
    model = heads_of_a_blt.with_block_table()
    module, params = model.module, model.params
    if objective is not HeadLoss:
        module = module.clone(config=dataclasses.replace(model.config, heads=None))
        params = {name: part for name, part in params.items() if name != "heads"}
    told = []
    runs.train(
        tiny_runs.config(steps=2, validate_every=0, save_every=None),
        objective(module, max_patches=room),
        batches,
        tmp_path,
        initial=lambda: params,
        report=told.append,
    )
    first, *_ = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    lines = [line for line in told if line.startswith("step ")]
    if room is None:
        assert lines and first["dropped_patches"] == 0
        assert not any("dropped" in line for line in lines)
        return
    count = dropped(next(batches("train", 0)))
    assert count > 1 and first["dropped_patches"] == count
    assert f"{count:.1f} patches per window dropped: raise max-patches" in lines[0]
