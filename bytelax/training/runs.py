"""A training run in a directory: its lock, recorded config, checkpoints, log and model."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from bytelax import checkpoints as models
from bytelax.checked import Checked
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.orbax import quiet
from bytelax.compiling import own_settings
from bytelax.pods import distributed, sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.training import guards, metrics, train_loop, train_state
from bytelax.training import optimizer as optimizer_lib
from bytelax.training.configs import OptimizerConfig, RunConfig
from bytelax.training.guards import Interrupts
from bytelax.training.metrics import Display
from bytelax.training.objectives import Objective
from bytelax.training.train_loop import Trained

# (split, number of batches taken before) -> batches of ids, i32[B, N + 1].
Batches = Callable[[Literal["train", "valid"], int], Iterable[np.ndarray]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(Checked):
    """Configuration of the training loop, without data, model and objective."""

    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshConfig = MeshConfig()
    run: RunConfig = RunConfig()


@own_settings()
def train(
    config: TrainConfig,
    objective: Objective,
    batches: Batches,
    out: pathlib.Path,
    *,
    initial: Callable[[], dict] | None = None,
    record: Mapping | None = None,
    report: Callable[[str], None] | None = None,
) -> Trained:
    """Trains a model, and resumes from the latest checkpoint in `out` if there is one.

    Results do not depend on how often the run was stopped and resumed: on the same machine, with
    the same mesh and config, the parameters are identical bit for bit. On SIGINT or SIGTERM the
    function saves a checkpoint and returns, after two more steps at most in a single process.

    Args:
      config: configuration of the loop.
      objective: the model and its loss.
      batches: returns the batches of a split from a step on, each with the rows of this process;
        see `bytelax.training.data.batches`.
      out: directory of the run, with checkpoints, metrics and, at the end, the model in
        `out/model`, also if the run was interrupted.
      initial: returns the parameters to start from; by default those of `objective.init`.
      record: the whole config of the run as nested dicts. It is recorded in `out`, and compared
        when the run is resumed. By default it is `config`.
      report: called with messages; by default they are shown on standard error.

    Raises:
      TrainingError: `out` holds another run or is in use by one, the data end too early, or the
        loss is not finite. Checkpoints that cannot be read or written raise Orbax's own errors.
    """
    out = pathlib.Path(out)
    steps, run = config.optimizer.steps, config.run
    display, log = Display(steps, report), out / "metrics.jsonl"
    optimizer, mesh = optimizer_lib.from_config(config.optimizer), sharding.make_mesh(config.mesh)
    program = train_loop.Program(objective, optimizer, run, mesh)
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet())
        stack.enter_context(guards.held(out))
        checkpoints = stack.enter_context(_checkpoints(out / "checkpoints", run, steps))
        begin = checkpoints.latest_step() or 0
        train_state.keep_config(
            out,
            plain.to_fields(config) if record is None else record,
            started=bool(begin),
            free=functools.partial(_may_differ, config.optimizer, begin),
        )
        metrics.drop_after(log, begin)
        interrupts = stack.enter_context(Interrupts(run.log_every, display.write))
        done = train_loop.loop(
            program,
            functools.partial(batches, "train"),
            steps=steps,
            valid=functools.partial(batches, "valid", 0) if run.validate_every else None,
            params=initial,
            checkpoints=checkpoints,
            report=functools.partial(metrics.write_line, log),
            display=display,
            stop=interrupts.agreed,
        )
        model = out / "model"
        if done.step > begin or not model.exists():
            params = objective.model_params(done.params)
            models.write(model, objective.module.config, params, layout="orbax", overwrite=True)
        distributed.wait("the model is written")
        if not done.finished:
            display.write(
                f"stopped and saved at step {done.step}: run the same command again to go on; "
                f"the model as it is now is {model}"
            )
    return done


def _checkpoints(directory: pathlib.Path, run: RunConfig, steps: int) -> ocp.CheckpointManager:
    """The manager of a run's checkpoints, of which the latest are kept."""
    options = ocp.CheckpointManagerOptions(
        save_decision_policy=policies.FixedIntervalPolicy(run.save_steps or steps),
        preservation_policy=policies.LatestN(run.keep_last),
        cleanup_tmp_directories=True,
    )
    return ocp.CheckpointManager(directory.absolute(), options=options)


def _may_differ(optimizer: OptimizerConfig, taken: int, field: str, before: Mapping) -> bool:
    """Whether a run of `taken` steps may be resumed with another value of a field of its config.

    `before` are the recorded fields.
    """
    if field.startswith("run."):
        return field not in ("run.seed", "run.dtype", "run.remat", "run.scan")
    if field in ("optimizer.steps", "optimizer.cooldown"):
        return taken <= optimizer.steps and _had_these_rates(optimizer, taken, before)
    return field in ("mesh", "data.prefetch")


def _had_these_rates(optimizer: OptimizerConfig, taken: int, before: Mapping) -> bool:
    """Whether the steps taken had the learning rates that this config gives them."""
    names = ("steps", "cooldown", "warmup")
    length: dict[str, Any] = {name: before.get(f"optimizer.{name}") for name in names}
    each = (optimizer, dataclasses.replace(optimizer, **length))
    rates = (optimizer_lib.learning_rate(one)(jnp.arange(taken)) for one in each)
    return np.array_equal(*rates)
