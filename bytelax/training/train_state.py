"""The state of a run, and the directory it is kept in."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict
from jax.sharding import Mesh
from orbax.checkpoint import v1 as ocp

from bytelax import config as plain
from bytelax.messages import one_line
from bytelax.pods import distributed, sharding
from bytelax.training import optimizer
from bytelax.training.metrics import BITS_PER_BYTE

CONFIG = "config.toml"


class TrainingError(ValueError):
    """A run cannot start or go on; the message is one line that says what to do."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """What a step changes.

    Attributes:
      step: steps taken.
      params: float32, all parameters of the model.
      optimizer: the state of `optimizer.transformation`, of the trained parameters only.
    """

    step: Any  # i32[]; a shape or a sharding in trees of these
    params: dict
    optimizer: Any


def new_state(
    params: dict, transformation: optax.GradientTransformation, trainable: optimizer.Trainable
) -> TrainState:
    """The state before the first step."""
    trained, _ = optimizer.partition(params, trainable)
    return TrainState(jnp.zeros((), jnp.int32), params, transformation.init(trained))


def state_shardings(abstract: TrainState, axes: dict, mesh: Mesh) -> TrainState:
    """Shardings of a state. The optimizer's moments lie where their parameters do."""
    params = sharding.shardings(abstract.params, axes, mesh)
    everywhere = sharding.replicated(mesh)
    by_path = dict(jax.tree_util.tree_leaves_with_path(params))

    def place(path, _):
        ends = (path[start:] for start in range(len(path)))
        return next((by_path[end] for end in ends if end in by_path), everywhere)

    moments = jax.tree_util.tree_map_with_path(place, abstract.optimizer)
    return TrainState(everywhere, params, moments)


class Checkpoints:
    """The checkpoints of a run: written in the background, whole or not at all.

    Each holds the state, the position in the data and the seed. The latest ones are kept, and the
    best by bits per byte.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        *,
        keep_last: int,
        keep_best: int,
        report: Callable[[str], None] = print,
    ):
        """Opens the directory of checkpoints; half-written ones in it are removed, with a message.

        Raises:
          OSError: the directory cannot be made or written.
        """
        self._directory = pathlib.Path(directory).absolute()
        self._keep = (keep_last, keep_best)
        self._report = report
        self._saving: tuple[int, ocp.AsyncResponse] | None = None
        self._directory.mkdir(parents=True, exist_ok=True)
        if distributed.is_first():
            self._sweep()
        distributed.wait("the checkpoints are swept")
        self._open()

    @property
    def steps(self) -> list[int]:
        """Steps of the whole checkpoints there are."""
        return [found.step for found in self._checkpointer.checkpoints]

    def restore(self, abstract: TrainState) -> tuple[TrainState, int] | None:
        """The latest checkpoint that can be read, and its position in the data; None without any.

        Those that cannot are renamed out of the way, with a message, once an earlier one could.

        Args:
          abstract: `jax.ShapeDtypeStruct`s with shardings.

        Raises:
          TrainingError: there are checkpoints, and none can be read. They are left as they are.
        """
        broken: dict[int, str] = {}
        for step in reversed(self.steps):
            reason = None
            try:
                loaded = self._checkpointer.load(step, _tree(abstract, position=0, seed=0))
            except Exception as error:  # Orbax and TensorStore raise many kinds
                reason = _reason(error)
            if distributed.anywhere(reason is not None):  # each reads other parts of it
                broken[step] = reason or "another process cannot read its part"
                continue
            if broken:
                self._set_aside(broken)
                self._checkpointer.close()
                self._open()
            state = TrainState(jnp.asarray(loaded["step"]), loaded["params"], loaded["optimizer"])
            state = jax.device_put(state, jax.tree.map(lambda x: x.sharding, abstract))
            return state, int(loaded["position"])
        if broken:
            step, reason = next(iter(broken.items()))
            raise TrainingError(f"{self._directory / str(step)} cannot be read: {reason}")
        return None

    def save(self, state: TrainState, *, position: int, seed: int, score: float | None) -> bool:
        """Starts to write a checkpoint, once the one before is written.

        A failure leaves the earlier checkpoints as they are and is told in a message, now or when
        the next one is saved.

        Args:
          state: copied before this returns, so that the next step may overwrite it.
          position: in the data, of the first example that was not trained on.
          seed: of the run.
          score: bits per byte on the validation text; None ranks behind all others.

        Returns:
          Whether nothing has failed so far.
        """
        whole = self.wait()
        step = int(state.step)
        try:
            pending = self._checkpointer.save_async(
                step,
                _tree(state, position=position, seed=seed),
                force=True,
                overwrite=step in self.steps,
                metrics=None if score is None else {BITS_PER_BYTE: score},
            )
        except Exception as error:
            self._failed(step, error)
            return False
        self._saving = (step, pending)
        return whole

    def wait(self) -> bool:
        """Waits for the checkpoint that is being written; False if it could not be."""
        if self._saving is None:
            return True
        step, pending = self._saving
        self._saving = None
        try:
            pending.result()
        except Exception as error:
            self._failed(step, error)
            return False
        return True

    def close(self) -> bool:
        """Waits, and closes; False if the last checkpoint could not be written."""
        whole = self.wait()
        self._checkpointer.close()
        if distributed.is_first():
            for path in self._partial():
                shutil.rmtree(path, ignore_errors=True)
        return whole

    def _open(self):
        last, best = self._keep
        policies = ocp.training.preservation_policies
        self._checkpointer = ocp.training.Checkpointer(
            self._directory,
            preservation_policy=policies.AnyPreservationPolicy([
                policies.LatestN(last),
                policies.BestN(
                    get_metric_fn=lambda metrics: metrics[BITS_PER_BYTE],
                    reverse=True,  # the best come last
                    n=best,
                    keep_checkpoints_without_metrics=False,
                ),
            ]),
        )  # fmt: skip

    def _sweep(self):
        """Removes what was never finished, and sets aside what Orbax would stumble over."""
        for path in self._partial():
            step, *_ = path.name.split(".")
            self._report(f"skipped the half-written checkpoint of step {step}")
            shutil.rmtree(path)
        for path in sorted(self._directory.iterdir()):
            if path.name.isdigit() and (path / "metrics" / "metrics").exists():
                try:
                    json.loads((path / "metrics" / "metrics").read_text())
                except ValueError as error:
                    self._rename({int(path.name): _reason(error)})

    def _partial(self):
        return sorted(self._directory.glob("*.orbax-checkpoint-tmp*"))

    def _failed(self, step, error):
        """Tells of it, and starts again from what is on the disk."""
        with contextlib.suppress(Exception):
            self._checkpointer.close()
        self._open()
        kept = f"that of step {self.steps[-1]} is whole" if self.steps else "there is none yet"
        self._report(
            f"the checkpoint of step {step} cannot be written to {self._directory}, {kept}: "
            f"{_reason(error)}"
        )

    def _set_aside(self, broken):
        if distributed.is_first():
            self._rename(broken)
        distributed.wait("broken checkpoints are set aside")

    def _rename(self, broken):
        for step, reason in broken.items():
            aside = self._directory / f"broken-{step}"
            self._report(f"skipped the checkpoint of step {step}, now {aside}: {reason}")
            shutil.rmtree(aside, ignore_errors=True)
            (self._directory / str(step)).rename(aside)


def keep_config(
    directory: pathlib.Path, config: Mapping, *, started: bool, free: Callable[[str], bool]
) -> None:
    """Writes the config of a run beside its checkpoints, or compares it with the one there.

    Args:
      directory: of the run.
      config: nested dict of strings, numbers, bools, None, and lists of these or of dicts.
      started: whether there is anything to go on from; a config without is overwritten.
      free: whether a field, `run.log_every`, may differ from that of the run so far.

    Raises:
      TrainingError: another field differs. One line names it.
      ConfigError: the file there is no TOML.
      OSError: the directory cannot be written.
    """
    path = directory / CONFIG
    if started and path.exists():
        before = flatten_dict(plain.read_toml(path), sep=".")
        now = flatten_dict(tomllib.loads(plain.to_toml(config)), sep=".")
        for name in dict.fromkeys([*before, *now]):
            if before.get(name) != now.get(name) and not free(name):
                raise TrainingError(
                    f"{directory} holds a run with {name} = {json.dumps(before.get(name))}, not "
                    f"{json.dumps(now.get(name))}: use its config, or another directory"
                )
    directory.mkdir(parents=True, exist_ok=True)
    distributed.wait("the config is compared")
    if distributed.is_first():
        partial = path.with_suffix(".partial")
        partial.write_text(plain.to_toml(config))
        os.replace(partial, path)


def _tree(state, *, position, seed):
    return {
        "step": state.step,
        "params": state.params,
        "optimizer": state.optimizer,
        "position": position,
        "seed": seed,
    }


def _reason(error):
    return f"{type(error).__name__}: {one_line(error)}"
