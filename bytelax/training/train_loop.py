"""The training loop: a jitted step, validation, checkpoints, and resuming."""

import contextlib
import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int, Key

from bytelax import checkpoints
from bytelax.checkpoints.orbax import quiet
from bytelax.compiling import compiler_options, own_jit, own_settings, random_key
from bytelax.models import narrow
from bytelax.models.execution import Execution
from bytelax.pods import distributed, global_arrays, sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.training import guards, objectives, train_state
from bytelax.training import metrics as metrics_lib
from bytelax.training import optimizer as optimizer_lib
from bytelax.training.configs import RunConfig
from bytelax.training.guards import Interrupts
from bytelax.training.metrics import BITS_PER_BYTE, Clock, Display
from bytelax.training.objectives import Metrics, Objective
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.train_state import Checkpoints, TrainingError, TrainState

_PATCHER = "patcher/"  # never cast, because its entropies are compared with a threshold
_STEPS, _VALIDATION = 0, 1  # folded into the PRNG key, one for each purpose


@runtime_checkable
class Batch(Protocol):
    """One process's rows of a batch, and the index of the first example after the batch.

    The rows are those that `global_arrays.rows_here` lists.
    """

    ids: np.ndarray
    index: int


# (split, index of the first example) -> batches.
Batches = Callable[[Literal["train", "valid"], int], Iterator[Batch]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Configuration of the training loop, without data, model and objective."""

    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshConfig = MeshConfig()
    run: RunConfig = RunConfig()


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a training run.

    Attributes:
      step: total number of steps taken, including those before the run was resumed.
      finished: False if the run was interrupted.
      params: float32 parameters after the last step.
      valid: metrics of the last validation, by name; empty if there was none.
      model: directory of the exported model, also if the run was interrupted.
    """

    step: int
    finished: bool
    params: dict
    valid: dict[str, float]
    model: pathlib.Path


@own_settings()
def train(
    config: TrainConfig,
    objective: Objective,
    batches: Batches,
    out: pathlib.Path,
    *,
    initial: Callable[[], dict] | None = None,
    record: Mapping | None = None,
    about: str = "",
    report: Callable[[str], None] | None = None,
) -> Result:
    """Trains a model, and resumes from the latest checkpoint in `out` if there is one.

    Results do not depend on how often the run was stopped and resumed: on the same machine, with
    the same mesh and config, the parameters are identical bit for bit. On SIGINT or SIGTERM the
    function saves a checkpoint and returns, after two more steps at most in a single process.

    Args:
      config: configuration of the loop.
      objective: the model and its loss.
      batches: returns the batches of a split from an example on. They have `ids` i32[b, N + 1],
        with the same number of rows b each, and `index`; see `bytelax.training.data.batches`.
      out: directory of the run, with checkpoints, metrics and, at the end, the model in
        `out/model`.
      initial: returns the parameters to start from; by default those of `objective.init`.
      record: the whole config of the run as nested dicts. It is recorded in `out`, and compared
        when the run is resumed. By default it is `config`.
      about: a message to show before the first step, with the number of parameters.
      report: called with messages, by another thread with that of a signal; by default they are
        shown on standard error.

    Raises:
      TrainingError: `out` holds another run or is in use by one, no checkpoint in it can be read,
        the last checkpoint cannot be written, the data end too early, or the loss is not finite.
    """
    out = pathlib.Path(out)
    steps, run = config.optimizer.steps, config.run
    display = Display(steps, report)
    program = _Program(config, objective, sharding.make_mesh(config.mesh))
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet())  # Orbax's failures are reported in one line
        stack.enter_context(guards.held(out, report=display.tell))
        kept = Checkpoints(out / "checkpoints", run, display.tell)
        stack.callback(kept.close)
        record = dataclasses.asdict(config) if record is None else record
        train_state.keep_config(
            out,
            record,
            started=bool(kept.steps),
            free=functools.partial(_may_differ, config.optimizer, max(kept.steps, default=0)),
        )
        display.tell("; ".join(filter(None, (about, program.parameters()))))
        restored = kept.restore(program.abstract)
        if restored is None:
            display.tell("making the parameters")
            state, position = program.start(initial), 0
        else:
            state, position = restored
            display.tell(f"going on from step {int(state.step)} in {out}")
        begin = step = int(state.step)
        log = metrics_lib.MetricsLog(out, start=begin, report=display.tell)
        interrupts = stack.enter_context(Interrupts(run.log_every, display.tell))
        data = batches("train", position) if step < steps else iter(())
        stack.callback(_close, data)
        clock, pending, valid, scored = Clock(), [], {}, -1
        while step < steps and not interrupts.agreed(step):
            batch = next(data, None)
            if batch is None:
                raise TrainingError(f"the training data ended after {step} of {steps} steps")
            if not program.compiled:
                with clock.paused(), display.during("compiling the training step"):
                    program.compile(batch.ids)
            with jax.profiler.StepTraceAnnotation("training step", step_num=step):
                state, measured = program.step(state, batch.ids)
            pending.append(measured)
            # Two steps at most are under way: a device is never idle, and a signal is soon obeyed.
            jax.block_until_ready(pending[-2:-1])
            position, step = batch.index, step + 1
            display.pulse(step)
            if any(
                _due(step, every, steps)
                for every in (run.log_every, run.validate_every, run.save_steps)
            ):
                speed = program.speed(clock.lap(pending), len(pending), batch.ids)
                means = metrics_lib.means(pending)
                values = {**means, **speed}
                pending = []
                log.write(step, "train", values)
                display.show(step, values)
                if not math.isfinite(means["loss"]):
                    raise TrainingError(
                        f"the loss is {means['loss']} at step {step}; checkpoints of steps "
                        f"{kept.steps} are kept: lower optimizer.peak"
                    )
            if run.validate_every and _due(step, run.validate_every, steps):
                with clock.paused():
                    valid, scored = program.validate(state.params, batches("valid", 0)), step
                    log.write(step, "valid", valid)
                    display.show(step, valid, "valid")
            if run.save_steps and step % run.save_steps == 0 and step < steps:
                with clock.paused():
                    score = valid.get(BITS_PER_BYTE) if scored == step else None
                    kept.save(state, position=position, score=score)
        whole = True
        if step > begin:
            score = valid.get(BITS_PER_BYTE) if scored == step else None
            whole = kept.save(state, position=position, score=score) and kept.wait()
        if distributed.anywhere(not whole):  # all processes stop, or some would wait forever
            raise TrainingError(f"step {step} could not be saved to {out}; see above")
        params = objective.model_params(state.params)
        model = export(out / "model", objective.module.config, params, replace=step > begin)
        if step < steps:
            display.tell(
                f"stopped and saved at step {step}: run the same command again to go on; "
                f"the model as it is now is {model}"
            )
    return Result(step, step == steps, state.params, valid, model)


def export(directory: pathlib.Path, config, params: dict, *, replace: bool) -> pathlib.Path:
    """Writes a trained model that `bytelax.load` can read, and returns its directory.

    Args:
      directory: where to write the model.
      config: config of the model.
      params: its parameters.
      replace: overwrite a model that is already there; otherwise that one is kept.
    """
    if replace or not directory.exists():
        checkpoints.write(directory, config, params, layout="orbax", overwrite=True)
    distributed.wait("exported")
    return directory


def cast(params: dict, dtype: str) -> dict:
    """Casts floating-point parameters to the compute dtype, except those of the patcher."""

    def convert(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        kept = _PATCHER in name or not jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf if kept else leaf.astype(dtype)

    return jax.tree_util.tree_map_with_path(convert, params)


def make_step(
    objective: Objective,
    config: TrainConfig,
    transformation: optax.GradientTransformation,
    mesh: Mesh | None = None,
) -> Callable[[TrainState, Int[Array, "B L"], Key[Array, ""]], tuple[TrainState, Metrics]]:
    """Builds a training step: a pure function of the state, a batch i32[B, N + 1], and the key.

    The step folds its number into the key, so the same key is passed to all steps. On a mesh of
    several devices, hidden states are sharded along the batch axis; see `Execution`.
    """
    schedule = optimizer_lib.learning_rate(config.optimizer)
    execution = Execution(remat=config.run.remat, scan=config.run.scan, mesh=_several(mesh))
    running = objectives.executed(objective, execution)

    @own_settings()
    def step(state, ids, key):
        trained, frozen = optimizer_lib.partition(state.params, objective.trainable)

        def loss(trained, ids, key):
            params = cast(optimizer_lib.combine(trained, frozen), config.run.dtype)
            return running.loss(params, ids, key)

        key = jax.random.fold_in(jax.random.fold_in(key, _STEPS), state.step)
        gradient, value, metrics = optimizer_lib.accumulated_gradient(
            loss, trained, ids, key, microbatches=config.optimizer.accumulate
        )
        updates, moments = transformation.update(gradient, state.optimizer, trained)
        trained = optax.apply_updates(trained, updates)
        one = jnp.ones(())
        metrics = metrics | {
            "loss": (value, one),
            "gradient_norm": (optax.tree.norm(gradient), one),
            "learning_rate": (schedule(state.step), one),
        }
        params = optimizer_lib.combine(trained, frozen)
        return TrainState(state.step + 1, params, moments), metrics

    return step


def check_window(objective: Objective, window: int) -> None:
    """Raises TrainingError if windows have positions that the model never decodes at."""
    if window > objective.context:
        raise TrainingError(
            f"windows of {window} are longer than the model's context, {objective.context} "
            "(max_bytes): lower data.window"
        )


def _several(mesh):
    """Returns the mesh if it has more than one device, else None."""
    return None if mesh is None or mesh.size == 1 else mesh


def _trainable(params):
    if narrow.has_int8(params):
        raise ValueError("int8 weights are for decoding: train the model as it was before")
    return params


class _Program:
    """The compiled programs of a run, its mesh, and its random key."""

    def __init__(self, config: TrainConfig, objective: Objective, mesh: Mesh):
        self.config, self.objective, self.mesh = config, objective, mesh
        self.transformation = optimizer_lib.transformation(config.optimizer)
        key = functools.partial(random_key, config.run.seed)
        self.key = jax.jit(key, out_shardings=sharding.replicated(mesh))()
        shapes = jax.eval_shape(self._drawn, self.key)
        self.places = train_state.state_shardings(shapes, objective.logical_axes(), mesh)
        self.abstract = jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            shapes,
            self.places,
        )
        self._compiled: jax.stages.Compiled | None = None

    def start(self, initial: Callable[[], dict] | None) -> TrainState:
        """Creates the sharded state before the first step."""
        if initial is None:
            return jax.jit(self._drawn, out_shardings=self.places)(self.key)
        params = global_arrays.put(_trainable(initial()), self.places.params)
        return jax.jit(self._begun, out_shardings=self.places)(params)

    def _drawn(self, key):
        return self._begun(_trainable(self.objective.init(key)))

    def _begun(self, params):
        # Copied, because steps donate the state and would overwrite the caller's arrays.
        params = jax.tree.map(lambda x: jnp.array(x, jnp.float32, copy=True), params)
        return train_state.new_state(params, self.transformation, self.objective.trainable)

    def parameters(self) -> str:
        """The numbers of parameters in words."""

        def count(params):
            return sum(math.prod(x.shape) for x in jax.tree.leaves(params))

        params = self.objective.model_params(self.abstract.params)
        trained, _ = optimizer_lib.partition(params, self.objective.trainable)
        whole, part = count(params), count(trained)
        return f"{whole:,} parameters" + ("" if whole == part else f", {part:,} of them trained")

    @property
    def compiled(self) -> bool:
        """Whether the step is compiled."""
        return self._compiled is not None

    def compile(self, ids: np.ndarray) -> None:
        """Compiles the step for batches of this shape."""
        ids = self._placed(ids)
        self._check_batch(*ids.shape)
        step = make_step(self.objective, self.config, self.transformation, self.mesh)
        places = (self.places, sharding.replicated(self.mesh))
        jitted = jax.jit(step, donate_argnums=0, out_shardings=places)
        traced = jitted.trace(self.abstract, ids, self.key)
        self._flops = metrics_lib.matmul_flops(traced.jaxpr)
        self._compiled = traced.lower().compile(compiler_options())

    def step(self, state: TrainState, ids: np.ndarray) -> tuple[TrainState, Metrics]:
        assert self._compiled is not None  # by `compile`
        return self._compiled(state, self._placed(ids), self.key)

    def _check_batch(self, rows, ids):
        check_window(self.objective, ids - 1)
        parts, microbatches = sharding.batch_shards(self.mesh), self.config.optimizer.accumulate
        if rows % (parts * microbatches):
            raise TrainingError(
                f"a batch of {rows} examples does not divide among {microbatches} microbatches on "
                f"{parts} parts of the mesh"
            )

    def _placed(self, ids):
        return global_arrays.put_rows(self.mesh, np.ascontiguousarray(ids, np.int32))

    def speed(self, seconds: float, steps: int, ids: np.ndarray) -> dict[str, float | None]:
        """Training speed in bytes per second, and as a share of the peak FLOP/s of the devices."""
        targets = global_arrays.all_rows(self.mesh, len(ids)) * (ids.shape[1] - 1) * steps
        peak = metrics_lib.peak_flops(self.mesh.devices.flat[0].device_kind)
        share = peak and self._flops * steps / seconds / (peak * self.mesh.size)
        return {"bytes_per_second": targets / seconds, "peak_share": share}

    @functools.cached_property
    def _measure(self):
        objective = objectives.executed(self.objective, Execution(mesh=_several(self.mesh)))

        def measure(params, ids, key):
            params = cast(params, self.config.run.dtype)
            value, metrics = objective.loss(params, ids, key)
            metrics |= objective.diagnostics(params, ids)
            return metrics | {"loss": (value, jnp.ones(()))}

        everywhere = sharding.replicated(self.mesh)
        return own_jit(measure, out_shardings=everywhere)

    def validate(self, params: dict, batches: Iterator[Batch]) -> dict[str, float]:
        """Averages metrics over the first validation batches, with the same keys each time."""
        measured = []
        key = jax.random.fold_in(self.key, _VALIDATION)
        for index, batch in enumerate(
            itertools.islice(batches, self.config.run.validation_batches)
        ):
            part = jax.random.fold_in(key, index)
            measured.append(self._measure(params, self._placed(batch.ids), part))
        _close(batches)
        if not measured:
            raise TrainingError("there is nothing to validate on: set run.validate_every to 0")
        return metrics_lib.means(measured)


def _close(batches: Iterator) -> None:
    getattr(batches, "close", lambda: None)()  # which not every iterator has


def _due(step, every, steps):
    return (every and step % every == 0) or step == steps


def _may_differ(optimizer: OptimizerConfig, taken: int, field: str, before: Mapping) -> bool:
    """Whether a run of `taken` steps may be resumed with another value of a field of its config.

    `before` are the recorded fields.
    """
    if field.startswith("run."):
        return field not in ("run.seed", "run.dtype", "run.remat", "run.scan")
    if field in ("optimizer.steps", "optimizer.cooldown"):
        return taken <= optimizer.steps and _had_these_rates(optimizer, taken, before)
    return field.startswith("mesh.") or field == "data.prefetch"


def _had_these_rates(optimizer: OptimizerConfig, taken: int, before: Mapping) -> bool:
    """Whether the steps taken had the learning rates that this config gives them."""
    names = ("steps", "cooldown", "warmup")
    length: dict[str, Any] = {name: before.get(f"optimizer.{name}") for name in names}
    each = (optimizer, dataclasses.replace(optimizer, **length))
    rates = (optimizer_lib.learning_rate(one)(jnp.arange(taken)) for one in each)
    return np.array_equal(*rates)
