"""The state of a training run, its checkpoints, and its recorded config."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict
from jax.sharding import Mesh
from orbax.checkpoint import CheckpointManager, args
from orbax.checkpoint import v1 as ocp

from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import one_line
from bytelax.pods import distributed, sharding
from bytelax.training import optimizer
from bytelax.training.configs import RunConfig
from bytelax.training.metrics import BITS_PER_BYTE

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


class Kept:
    """Where the loop saves states: nowhere, in `Checkpoints`, or by an Orbax manager (`Managed`).

    Attributes:
      place: the directory, for messages.
    """

    place: Any = None

    @property
    def steps(self) -> Sequence[int]:
        """Steps of the complete checkpoints, ascending."""
        return ()

    def restore(self, abstract: TrainState) -> tuple[TrainState, int] | None:
        """Restores the latest state and its position in the data, or None if there is none.

        Args:
          abstract: the state as `jax.ShapeDtypeStruct`s with shardings.
        """
        return None

    def due(self, step: int) -> bool:
        """Whether the state after this step is to be saved, should it not be the last."""
        return False

    def save(self, state: TrainState, *, position: int, scores: Mapping[str, float]) -> bool:
        """Starts to save a state.

        Args:
          state: the state; it is copied before this returns, so the next step may overwrite it.
          position: position in the data of the first example that was not trained on.
          scores: metrics of its validation, if it had one.

        Returns:
          False if it is known to fail.
        """
        return True

    def wait(self) -> bool:
        """Waits for what is being saved; returns False if it failed."""
        return True


class Managed(Kept):
    """The checkpoints of an Orbax `CheckpointManager`, whose options say when to save.

    The position in the data is the number of steps. What fails raises the manager's exceptions.
    """

    def __init__(self, manager: CheckpointManager):
        """Takes a manager, which stays the caller's to close."""
        self._manager = manager
        self.place = manager.directory

    @property
    def steps(self) -> Sequence[int]:
        return self._manager.all_steps()

    def restore(self, abstract: TrainState) -> tuple[TrainState, int] | None:
        step = self._manager.latest_step()
        if step is None:
            return None
        loaded = self._manager.restore(step, args=args.StandardRestore(vars(abstract)))
        return TrainState(**loaded), step

    def due(self, step: int) -> bool:
        return self._manager.should_save(step)

    def save(self, state: TrainState, *, position: int, scores: Mapping[str, float]) -> bool:
        fields = args.StandardSave(vars(state))
        step, metrics = int(state.step), dict(scores) or None
        return self._manager.save(step, args=fields, metrics=metrics, force=True)

    def wait(self) -> bool:
        self._manager.wait_until_finished()
        return True


class Checkpoints(Kept):
    """The checkpoints of a run, written atomically and in the background.

    Each checkpoint holds the state, the position in the data and the seed. The latest checkpoints
    are kept, and those with the fewest bits per byte.
    """

    def __init__(self, directory: pathlib.Path, run: RunConfig, report: Callable[[str], None]):
        """Opens the directory of checkpoints and removes half-written ones, with a message.

        Args:
          directory: where to keep checkpoints; it is created if it does not exist.
          run: says how many checkpoints to keep, and the seed.
          report: called with messages.

        Raises:
          OSError: the directory cannot be created or written.
        """
        self.place = directory.parent
        self._directory = directory.absolute()
        self._run = run
        self._report = report
        self._saving: tuple[int, ocp.AsyncResponse] | None = None
        self._directory.mkdir(parents=True, exist_ok=True)
        if distributed.is_first():
            self._sweep()
        distributed.wait("the checkpoints are swept")
        self._open()

    @property
    def steps(self) -> list[int]:
        return [found.step for found in self._checkpointer.checkpoints]

    def restore(self, abstract: TrainState) -> tuple[TrainState, int] | None:
        """Restores the latest readable checkpoint and its position in the data.

        Later checkpoints that cannot be read are renamed, with a message, once an earlier one is
        restored.

        Args:
          abstract: the state as `jax.ShapeDtypeStruct`s with shardings.

        Returns:
          The state and the position in the data, or None if there are no checkpoints.

        Raises:
          TrainingError: there are checkpoints, but none can be read. They are left unchanged.
        """
        broken: dict[int, str] = {}
        for step in reversed(self.steps):
            reason = None
            try:
                loaded = self._checkpointer.load(step, _tree(abstract, position=0, seed=0))
            except Exception as error:  # Orbax and TensorStore raise many kinds
                reason = _reason(error)
            if distributed.anywhere(reason is not None):  # each process reads other shards
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

    def due(self, step: int) -> bool:
        return bool(self._run.save_steps) and step % self._run.save_steps == 0

    def save(self, state: TrainState, *, position: int, scores: Mapping[str, float]) -> bool:
        """Starts to write a checkpoint, after waiting for the one before.

        A failure leaves earlier checkpoints unchanged. It is reported in a message, now or at the
        next call.

        Args:
          state: the state; it is copied before this returns, so the next step may overwrite it.
          position: position in the data of the first example that was not trained on.
          scores: metrics of the validation. Without bits per byte the checkpoint ranks below all
            others.

        Returns:
          False if this checkpoint or the one before is known to have failed.
        """
        whole = self.wait()
        step = int(state.step)
        try:
            pending = self._checkpointer.save_async(
                step,
                _tree(state, position=position, seed=self._run.seed),
                force=True,
                overwrite=step in self.steps,
                metrics={BITS_PER_BYTE: scores[BITS_PER_BYTE]} if BITS_PER_BYTE in scores else None,
            )
        except Exception as error:
            self._failed(step, error)
            return False
        self._saving = (step, pending)
        return whole

    def wait(self) -> bool:
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

    def close(self) -> None:
        """Waits as `wait` does, then closes."""
        self.wait()
        self._checkpointer.close()
        if distributed.is_first():
            for path in self._partial():
                shutil.rmtree(path, ignore_errors=True)

    def _open(self):
        policies = ocp.training.preservation_policies
        self._checkpointer = ocp.training.Checkpointer(
            self._directory,
            preservation_policy=policies.AnyPreservationPolicy(
                [
                    policies.LatestN(self._run.keep_last),
                    policies.BestN(
                        get_metric_fn=lambda metrics: metrics[BITS_PER_BYTE],
                        reverse=True,  # lower is better
                        n=self._run.keep_best,
                        keep_checkpoints_without_metrics=False,
                    ),
                ]
            ),
        )

    def _sweep(self):
        """Removes unfinished checkpoints, and renames those whose metrics Orbax cannot parse."""
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
        """Reports that a checkpoint failed, and reopens the directory from what is on disk."""
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


_SHOWN = 4  # differences in one line


def _length_hint(differ):
    length = ("optimizer.steps", "optimizer.cooldown")
    if not any(name in length for name in differ):
        return ""
    return "; only a run with optimizer.cooldown may change its length, until its cooldown begins"


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
      free: whether a field, such as `run.log_every`, may differ from what the second argument, the
        recorded config, says of it.

    Raises:
      TrainingError: another field differs; the message is one line that names them.
      CheckpointError: the recorded config is not TOML.
      OSError: the directory cannot be written.
    """
    path = directory / CONFIG
    if started and path.exists():
        before = flatten_dict(plain.read_toml(path), sep=".")
        now = flatten_dict(plain.from_toml(plain.to_toml(config)), sep=".")
        differ = {
            name: f"{name} = {json.dumps(before.get(name))}, not {json.dumps(now.get(name))}"
            for name in dict.fromkeys([*before, *now])
            if before.get(name) != now.get(name) and not free(name, before)
        }
        if differ:
            told = "; ".join([*differ.values()][:_SHOWN])
            raise TrainingError(
                f"{directory} holds a run with {told}: use --config {path}, or another directory"
                f"{_length_hint(differ)}"
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
