"""Training by `bytelax.train`: own arrays, Optax transformation, Orbax manager and callbacks."""

import itertools

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

import bytelax
from bytelax import cli, loading, training
from bytelax.models.blt import BLT
from bytelax.training import data, optimizer
from bytelax.training.configs import DataConfig, OptimizerConfig, RunConfig, Source
from bytelax.training.objectives import NextByte
from tests.helpers import models_for_tests as models
from tests.helpers import tiny_runs
from tests.helpers.tiny_runs import assert_same

PLAIN = tiny_runs.NextByte()
IDS = np.stack(list(itertools.islice(tiny_runs.batches("train", 0), 3)))


def train(batches=IDS, objective=PLAIN, **how):
    return bytelax.train(objective, batches, optimizer=optax.adamw(1e-2), show=str, **how)


@pytest.mark.slow
def test_a_blt_is_trained_saved_resumed_and_decoded(tmp_path):
    objective = NextByte(BLT(models.PLAIN))
    patcher = models.model(models.PLAIN).params["patcher"]
    start = training.initialise(objective, {"patcher": patcher}, seed=5)
    seen = []
    with ocp.CheckpointManager(tmp_path) as manager:
        train(IDS[:2], objective, params=start, checkpoints=manager)
    with ocp.CheckpointManager(tmp_path) as manager:
        run = train(
            objective=objective,
            params=lambda: pytest.fail("there is a checkpoint"),
            checkpoints=manager,
            valid=IDS[:1],
            report=lambda *line: seen.append(line),
        )
        assert manager.all_steps() == [1, 2, 3]
    with ocp.CheckpointManager(tmp_path) as manager:
        saved = manager.restore(3, args=ocp.args.StandardRestore())
    assert_same(saved["params"], run.params)
    assert [(step, split) for step, split, _ in seen] == [(3, "train"), (3, "valid")]
    assert seen[1][2] == run.valid and run.finished
    assert_same(run.params, train(objective=objective, params=start).params)
    assert_same(run.params["patcher"], patcher)
    assert not np.array_equal(
        run.params["decoder"]["head"]["kernel"], start["decoder"]["head"]["kernel"]
    )
    model = bytelax.Model(objective.module, saved["params"])
    drafted = model.generate("the cat", method="blt-s", max_new_bytes=8)
    assert drafted.bytes == run.model.generate("the cat", method="ar", max_new_bytes=8).bytes


@pytest.mark.slow
def test_the_command_and_python_give_the_same_parameters(tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(tiny_runs.TEXT)
    trunk = "--model.trunk.dim 16 --model.trunk.layers 1 --model.trunk.kv-heads 6".split()
    arguments = ["--data.window", "32", "--data.batch", "4", "--optimizer.steps", "3"]
    out = ["--out", str(tmp_path / "run"), "--run.validate-every", "0", "--run.seed", "7"]
    assert cli.main(["train", "byte-lm", "--data", str(text), *arguments, *out, *trunk]) == 0
    by_command = loading.load(tmp_path / "run")
    source = DataConfig(sources=(Source(str(text)),), window=32, batch=4)
    run = bytelax.train(
        NextByte(by_command.module),
        data.batches(source, split="train"),
        optimizer=optimizer.transformation(OptimizerConfig(steps=3)),
        steps=3,
        run=RunConfig(seed=7),
    )
    assert_same(run.params, by_command.params)


@pytest.mark.parametrize(
    ("batches", "how", "told"),
    [
        (iter(IDS), {}, "these batches have no length"),
        (iter(IDS[0]), {"steps": 3}, r"batch 1 is int32\[33\]"),
        (iter(IDS / 2), {"steps": 3}, r"batch 1 is float64\[8, 33\]"),
        (IDS + 200, {}, r"batch 1 has ids outside of 0\.\.259"),
        (IDS, {"params": {}}, "has the shape None"),
        ([], {}, "there is nothing to train on: 0 batches or steps"),
    ],
)
def test_what_does_not_fit_is_told(batches, how, told):
    with pytest.raises(ValueError, match=told):
        train(batches, **how)


def test_initialise_takes_no_part_that_the_objective_lacks():
    with pytest.raises(ValueError, match="'teacher' is not one of the parts"):
        training.initialise(PLAIN, {"teacher": {}})


@pytest.mark.slow
def test_initialise_is_what_train_starts_from():
    start = training.initialise(PLAIN, seed=3)
    known = training.initialise(PLAIN, {"head": start["head"]}, seed=4)
    assert known["head"] is start["head"]
    assert not np.array_equal(known["embed"]["embedding"], start["embed"]["embedding"])
    frozen = train(objective=tiny_runs.NextByte(frozen=()), run=RunConfig(seed=3))
    assert_same(frozen.params, start)
