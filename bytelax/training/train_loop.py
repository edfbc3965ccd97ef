"""The training loop: a jitted step, validation, checkpoints, and resuming."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh
from jaxtyping import Array, Int, Key

from bytelax.checked import check_type
from bytelax.compiling import compiler_options, own_jit, own_settings, random_key
from bytelax.model import Model
from bytelax.models import narrow
from bytelax.models.execution import Execution
from bytelax.pods import global_arrays, sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.training import metrics as metrics_lib
from bytelax.training import objectives, train_state
from bytelax.training import optimizer as optimizer_lib
from bytelax.training.configs import RunConfig
from bytelax.training.metrics import Clock, Display
from bytelax.training.objectives import Metrics, Objective
from bytelax.training.optimizer import Optimizer
from bytelax.training.train_state import TrainingError, TrainState

_PATCHER = "patcher/"  # never cast, because its entropies are compared with a threshold
_STEPS, _VALIDATION = 0, 1  # folded into the PRNG key, one for each purpose

_RUN, _ONE_DEVICE = RunConfig(), MeshConfig()

# The parameters of an objective, or a function that returns them if they are needed.
Initial = dict | Callable[[], dict]
Report = Callable[[int, str, Mapping[str, float | None]], None]


@dataclasses.dataclass(frozen=True)
class Trained:
    """The outcome of training.

    Attributes:
      objective: what was trained.
      state: the state after the last step; `bytelax.train` saves it as a dict of its fields.
      finished: False if the run was interrupted.
      valid: metrics of the last validation, by name; empty if there was none.
    """

    objective: Objective
    state: TrainState
    finished: bool
    valid: dict[str, float]

    @property
    def step(self) -> int:
        """Total number of steps taken, including those before the run was resumed."""
        return int(self.state.step)

    @property
    def params(self) -> dict:
        """All parameters of the objective, float32."""
        return self.state.params

    @property
    def model(self) -> Model:
        """The trained model, which can decode."""
        return Model(self.objective.module, self.objective.model_params(self.params))


@own_settings()
def initialise(
    objective: Objective, known: Mapping[str, Any] | None = None, *, seed: int = 0
) -> dict:
    """Initializes the parameters of an objective at random, except for known ones.

    Args:
      objective: the model and its loss.
      known: parameters that are trained already, by the name of their part: `{"patcher": ...}` for
        the entropy model of a BLT, `{"teacher": ...}` for that of a student, or a whole model. If
        the decoder of a BLT embeds bytes itself but the known decoder read the encoder's states,
        its embedding is that of the encoder.
      seed: seed of the random ones. With nothing known they are those that `train` starts from.

    Returns:
      A nested dict of arrays.

    Raises:
      ValueError: the objective has no part of a known name.
      TypeError: `objective` is none.
    """
    _check_objective(objective)
    known = dict(known or {})

    def fresh(key):
        params = objective.init(key)
        for name in known.keys() - params.keys():
            raise ValueError(f"{name!r} is not one of the parts {', '.join(params)}")
        return {name: part for name, part in params.items() if name not in known}

    # Compiled, so that nothing is made of what is known, which may be large.
    params = jax.jit(fresh)(random_key(seed)) | known
    config = objective.module.config
    if config.patching is not None and config.decoder_input == "embedding":
        params["decoder"] = {"embed": params["encoder"]["embed"]} | params["decoder"]
    return params


@own_settings()
def train(
    objective: Objective,
    batches: Iterable[Int[np.ndarray, "B L"]],
    *,
    optimizer: optax.GradientTransformation,
    steps: int | None = None,
    valid: Iterable[Int[np.ndarray, "B L"]] | None = None,
    params: Initial | None = None,
    checkpoints: ocp.CheckpointManager | None = None,
    report: Report | None = None,
    show: Callable[[str], None] | None = None,
    run: RunConfig = _RUN,
    mesh: MeshConfig = _ONE_DEVICE,
) -> Trained:
    """Trains a model on batches of ids, by any Optax transformation.

    If `checkpoints` has a checkpoint, training goes on from the latest: the same call with the same
    batches then ends with the same parameters, bit for bit, as if it had not been interrupted.
    `bytelax train` runs the same loop, on text files and with a directory of its own.

    Args:
      objective: the model and its loss, such as `training.objectives.NextByte(module)`.
      batches: the ids of each step, of one shape: inputs are `ids[:, :-1]`, targets `ids[:, 1:]`.
        They begin with the first step also when training goes on, which skips those it has seen.
        An array i32[steps, B, L] is such an iterable. On several processes each gives its own
        rows, see `pods.global_arrays.rows_here`.
      optimizer: updates the parameters that `objective.trainable` names.
      steps: number of steps in all; by default the number of batches, if they have a length.
      valid: batches to validate on every `run.validate_every` steps, the first
        `run.validation_batches` of them; they are iterated over each time.
      params: the parameters to start from, as `initialise` returns them, or a function that
        returns them, which is called if there is no checkpoint. By default they are random.
      checkpoints: an Orbax `CheckpointManager`. It decides in which steps to save
        `{"step": ..., "params": ..., "optimizer": ...}`, is given the metrics of a validation in
        the same step, and also has the last step. It is not closed.
      report: called with the step, "train" or "valid", and metrics by name: means over the
        `run.log_every` steps since the last call.
      show: called with lines of progress; by default they are printed to standard error.
      run: seed, compute dtype, and how often to log and validate. Its settings of checkpoints
        are for `bytelax train`.
      mesh: devices to train on.

    Raises:
      TrainingError: the ids or the parameters do not fit the objective, there are fewer batches
        than steps, or the loss is not finite.
      ValueError: `steps` is missing for batches without a length, or no number; there is no step to
        take; or the mesh has too many devices.
      TypeError: `objective` is none, or `optimizer` no Optax transformation.
    """
    _check_objective(objective)
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(
            "optimizer is an Optax transformation, such as optax.adamw(1e-3), not a "
            f"{type(optimizer).__name__}"
        )
    for name, value, hint in (("run", run, RunConfig), ("mesh", mesh, MeshConfig)):
        check_type(name, value, hint)
    check_type("steps", steps, int | None)
    if steps is None:
        if not isinstance(batches, Sized):
            raise ValueError("steps is missing: these batches have no length")
        steps = len(batches)
    if steps < 1:
        raise ValueError(f"there is nothing to train on: {steps} batches or steps")
    program = Program(objective, Optimizer(optimizer), run, sharding.make_mesh(mesh))
    return loop(
        program,
        lambda step: itertools.islice(batches, step, None),
        steps=steps,
        valid=None if valid is None else lambda: valid,
        params=params,
        checkpoints=checkpoints,
        report=report or (lambda *_: None),
        display=Display(steps, show),
    )


def loop(
    program: "Program",
    batches: Callable[[int], Iterable[Int[np.ndarray, "B L"]]],
    *,
    steps: int,
    valid: Callable[[], Iterable[Int[np.ndarray, "B L"]]] | None,
    params: Initial | None,
    checkpoints: ocp.CheckpointManager | None,
    report: Report,
    display: Display,
    stop: Callable[[int], bool] = lambda step: False,
) -> Trained:
    """Takes steps from the latest checkpoint on, with validations and checkpoints.

    `params`, `checkpoints` and `report` are as in `train`. `batches` returns the batches after a
    step, `valid` those to validate on, and `stop` whether to stop after a step.

    Raises:
      TrainingError: the data end too early, or the loss is not finite.
    """
    display.write(program.parameters())
    state = program.restored(checkpoints)
    if state is None:
        state = program.begin(params)
    else:
        display.write(f"going on from step {int(state.step)}")
    run, begin = program.run, int(state.step)
    data = program.checked(batches(begin), begin) if begin < steps else iter(())
    step, clock, pending, scored = begin, Clock(), [], -1
    scores: dict[str, float] = {}

    def save() -> None:
        assert checkpoints is not None
        metrics = scores if scored == step and scores else None
        fields = ocp.args.StandardSave(vars(state))
        checkpoints.save(step, args=fields, metrics=metrics, force=True)

    while step < steps and not stop(step):
        ids = next(data, None)
        if ids is None:
            raise TrainingError(f"the training data ended after {step} of {steps} steps")
        if not program.compiled:
            display.write("compiling the training step")
            with clock.paused():
                program.compile(ids)
        with jax.profiler.StepTraceAnnotation("training step", step_num=step):
            state, measured = program.step(state, ids)
        pending.append(measured)
        # Two steps at most are under way: a device is never idle, and a signal is soon obeyed.
        jax.block_until_ready(pending[-2:-1])
        step += 1
        validates = valid if _due(step, run.validate_every, steps) else None
        saves = step < steps and checkpoints is not None and checkpoints.should_save(step)
        if validates or saves or _due(step, run.log_every, steps):
            speed = program.speed(clock.lap(pending), len(pending), ids)
            means = metrics_lib.means(pending)
            values = {**means, **speed}
            pending = []
            report(step, "train", values)
            display.show(step, values)
            if not math.isfinite(means["loss"]):
                raise TrainingError(
                    f"the loss is {means['loss']} at step {step}: lower the learning rate "
                    "(optimizer.peak)"
                )
        if validates is not None:
            with clock.paused():
                scores, scored = program.validate(state.params, validates()), step
                report(step, "valid", scores)
                display.show(step, scores, "valid")
        if saves:
            with clock.paused():
                save()
    if checkpoints is not None:
        if checkpoints.latest_step() != step and step > begin:
            save()
        checkpoints.wait_until_finished()
    return Trained(program.objective, state, step == steps, scores)


def cast(params: dict, dtype: str) -> dict:
    """Casts floating-point parameters to the compute dtype, except those of the entropy model."""

    def convert(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        kept = _PATCHER in name or not jnp.issubdtype(leaf.dtype, jnp.floating)
        return leaf if kept else leaf.astype(dtype)

    return jax.tree_util.tree_map_with_path(convert, params)


def make_step(
    objective: Objective,
    optimizer: Optimizer,
    run: RunConfig,
    mesh: Mesh | None = None,
) -> Callable[[TrainState, Int[Array, "B L"], Key[Array, ""]], tuple[TrainState, Metrics]]:
    """Builds a training step: a pure function of the state, a batch i32[B, N + 1], and the key.

    The step folds its number into the key, so the same key is passed to all steps. On a mesh of
    several devices, hidden states are sharded along the batch axis; see `Execution`.
    """
    execution = Execution(remat=run.remat, scan=run.scan, mesh=_several(mesh))
    running = objectives.executed(objective, execution)

    @own_settings()
    def step(state, ids, key):
        trained, frozen = optimizer_lib.partition(state.params, objective.trainable)

        def loss(trained, ids, key):
            params = cast(optimizer_lib.combine(trained, frozen), run.dtype)
            return running.loss(params, ids, key)

        key = jax.random.fold_in(jax.random.fold_in(key, _STEPS), state.step)
        gradient, value, metrics = optimizer_lib.accumulated_gradient(
            loss, trained, ids, key, microbatches=optimizer.accumulate
        )
        updates, moments = optimizer.transformation.update(gradient, state.optimizer, trained)
        trained = optax.apply_updates(trained, updates)
        one = jnp.ones(())
        metrics = metrics | {
            "loss": (value, one),
            "gradient_norm": (optax.tree.norm(gradient), one),
        }
        if optimizer.rate is not None:
            metrics["learning_rate"] = (optimizer.rate(state.step), one)
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


def _check_objective(objective):
    if not isinstance(objective, Objective):
        raise TypeError(
            "objective is a bytelax.training.objectives.Objective, such as NextByte(model.module), "
            f"not a {type(objective).__name__}"
        )


def _several(mesh):
    """Returns the mesh if it has more than one device, else None."""
    return None if mesh is None or mesh.size == 1 else mesh


def _trainable(params):
    if narrow.has_int8(params):
        raise ValueError("int8 weights are for decoding: train the model as it was before")
    return params


class Program:
    """The compiled programs of a run, its mesh, and its random key."""

    def __init__(self, objective: Objective, optimizer: Optimizer, run: RunConfig, mesh: Mesh):
        self.objective, self.optimizer, self.run, self.mesh = objective, optimizer, run, mesh
        key = functools.partial(random_key, run.seed)
        self.key = jax.jit(key, out_shardings=sharding.replicated(mesh))()
        shapes = jax.eval_shape(self._drawn, self.key)
        self.places = train_state.state_shardings(shapes, objective.logical_axes(), mesh)
        self.abstract = jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            shapes,
            self.places,
        )
        self._compiled: jax.stages.Compiled | None = None

    def restored(self, checkpoints: ocp.CheckpointManager | None) -> TrainState | None:
        """The sharded state of the latest checkpoint; None if there is none."""
        step = None if checkpoints is None else checkpoints.latest_step()
        if checkpoints is None or step is None:
            return None
        fields = ocp.args.StandardRestore(vars(self.abstract))
        return TrainState(**checkpoints.restore(step, args=fields))

    def begin(self, params: Initial | None) -> TrainState:
        """The sharded state before the first step, with given parameters or random ones."""
        if params is None:
            return jax.jit(self._drawn, out_shardings=self.places)(self.key)
        given = _trainable(params() if callable(params) else params)
        self._check_shapes(given)
        given = global_arrays.put(given, self.places.params)
        return jax.jit(self._begun, out_shardings=self.places)(given)

    def checked(self, batches: Iterable, taken: int) -> Iterator[Int[np.ndarray, "B L"]]:
        """Yields batches of ids, the first after `taken` others.

        Raises:
          TrainingError: one is not i32[B, L], or has an id that the model lacks.
        """
        known = self.objective.module.config.vocab_size
        for index, ids in enumerate(map(np.asarray, batches), taken + 1):
            if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
                shape = f"{ids.dtype}{list(ids.shape)}"
                raise TrainingError(f"a batch of ids is i32[B, L], and batch {index} is {shape}")
            if ids.min() < 0 or ids.max() >= known:
                raise TrainingError(f"batch {index} has ids outside of 0..{known - 1}")
            yield ids

    def _check_shapes(self, params):
        """Raises TrainingError if these are not the parameters of the objective."""
        wanted, given = (
            {jax.tree_util.keystr(path, simple=True, separator="/"): x.shape for path, x in leaves}
            for leaves in map(jax.tree_util.tree_leaves_with_path, (self.abstract.params, params))
        )
        for name in sorted({**wanted, **given}):
            if wanted.get(name) != given.get(name):
                raise TrainingError(
                    f"the parameter {name} has the shape {given.get(name)}, and that of the "
                    f"objective {wanted.get(name)}"
                )

    def _drawn(self, key):
        return self._begun(_trainable(self.objective.init(key)))

    def _begun(self, params):
        # Copied, because steps donate the state and would overwrite the caller's arrays.
        params = jax.tree.map(lambda x: jnp.array(x, jnp.float32, copy=True), params)
        return train_state.new_state(
            params, self.optimizer.transformation, self.objective.trainable
        )

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
        step = make_step(self.objective, self.optimizer, self.run, self.mesh)
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
        parts, microbatches = sharding.batch_shards(self.mesh), self.optimizer.accumulate
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
            params = cast(params, self.run.dtype)
            value, metrics = objective.loss(params, ids, key)
            metrics |= objective.diagnostics(params, ids)
            return metrics | {"loss": (value, jnp.ones(()))}

        everywhere = sharding.replicated(self.mesh)
        return own_jit(measure, out_shardings=everywhere)

    def validate(self, params: dict, batches: Iterable) -> dict[str, float]:
        """Averages metrics over the first validation batches, with the same keys each time."""
        measured = []
        key = jax.random.fold_in(self.key, _VALIDATION)
        first = itertools.islice(batches, self.run.validation_batches)
        for index, ids in enumerate(self.checked(first, 0)):
            part = jax.random.fold_in(key, index)
            measured.append(self._measure(params, self._placed(ids), part))
        if not measured:
            raise TrainingError("there is nothing to validate on: set run.validate_every to 0")
        return metrics_lib.means(measured)


def _due(step, every, steps):
    return (every and step % every == 0) or step == steps
