"""The state of a training run, and its recorded config."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict
from jax.sharding import Mesh

from bytelax.checkpoints import config as plain
from bytelax.pods import distributed, sharding
from bytelax.training import optimizer

CONFIG = "config.toml"


class TrainingError(ValueError):
    """A training run cannot start or continue; the message is one line that says what to do."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """The state that a training step updates.

    Attributes:
      step: number of steps taken.
      params: all parameters of the objective, float32.
      optimizer: the state of `optimizer.transformation`, for the trained parameters only.
    """

    step: Any  # i32[]; or a shape or a sharding, in trees of those
    params: dict
    optimizer: Any


def new_state(
    params: dict, transformation: optax.GradientTransformation, trainable: optimizer.Trainable
) -> TrainState:
    """Creates the state before the first step."""
    trained, _ = optimizer.partition(params, trainable)
    return TrainState(jnp.zeros((), jnp.int32), params, transformation.init(trained))


def state_shardings(abstract: TrainState, axes: dict, mesh: Mesh) -> TrainState:
    """Shardings of a state; the optimizer's moments are sharded like their parameters."""
    params = sharding.shardings(abstract.params, axes, mesh)
    everywhere = sharding.replicated(mesh)
    by_path = dict(jax.tree_util.tree_leaves_with_path(params))

    def place(path, _):
        ends = (path[start:] for start in range(len(path)))
        return next((by_path[end] for end in ends if end in by_path), everywhere)

    moments = jax.tree_util.tree_map_with_path(place, abstract.optimizer)
    return TrainState(everywhere, params, moments)


def keep_config(
    directory: pathlib.Path,
    config: Mapping,
    *,
    started: bool,
    free: Callable[[str, Mapping], bool],
) -> None:
    """Writes the config of a run to its directory, after comparing it with the recorded one.

    Args:
      directory: directory of the run.
      config: nested dict of strings, numbers, bools, None, and lists of these or of dicts.
      started: whether the run has checkpoints. Without them a recorded config is not compared.
      free: whether a field, such as `run.log_every`, may differ from its recorded value. It is
        called with the name and the recorded config.

    Raises:
      TrainingError: another field differs; the message names it.
    """
    path = directory / CONFIG
    if started and path.exists():
        before, now = (flatten_dict(x, sep=".") for x in (plain.read_toml(path), config))
        for name in [*before, *now]:
            if before.get(name) != now.get(name) and not free(name, before):
                was, asked = json.dumps(before.get(name)), json.dumps(now.get(name))
                raise TrainingError(
                    f"{directory} holds a run with {name} = {was}, not {asked}: go on with that, "
                    "or choose another directory (see the docs on training for what may change)"
                )
    distributed.wait("the config is compared")
    if distributed.is_first():
        partial = path.with_suffix(".partial")
        partial.write_text(plain.to_toml(config))
        os.replace(partial, path)
