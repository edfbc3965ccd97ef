"""The step, the optimizer, and the loop around them."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import loading
from bytelax.models.byte_lm import ByteLM
from bytelax.pods import sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.training import metrics, optimizer, runs, train_loop, train_state
from bytelax.training.configs import RunConfig
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.train_state import TrainingError
from tests.helpers import tiny_runs
from tests.helpers.tiny_runs import WINDOW, NextByte, assert_same, batches, config

KEY = jax.random.key(0)
IDS = jnp.asarray(next(batches("train", 0)))
PLAIN = NextByte()
SETTINGS = config(steps=30, validate_every=10, save_every=10)  # one program for most runs


def lines(out, split="train"):
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["split"] == split]


@functools.cache
def initial():
    return jax.jit(PLAIN.init)(KEY)


def one_step(config, objective=PLAIN, step=0):
    """The state after a step from the initial parameters, and its metrics."""
    transformation = optimizer.transformation(config.optimizer)
    state = train_state.new_state(initial(), transformation, objective.trainable)
    state = dataclasses.replace(state, step=jnp.int32(step))
    run = jax.jit(
        train_loop.make_step(objective, optimizer.from_config(config.optimizer), config.run)
    )
    state, measured = run(state, IDS, KEY)
    return state, metrics.means([measured])


# --- the loop ---


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    told = []
    result = runs.train(SETTINGS, PLAIN, batches, out, report=told.append)
    return out, result, told


def test_windows_longer_than_the_context(tmp_path):
    """The model would learn positions that it never decodes at."""
    for context, told in ((WINDOW - 1, "longer than"), (WINDOW, "does not divide among 3")):
        module = ByteLM(dataclasses.replace(PLAIN.module.config, max_bytes=context))
        with pytest.raises(TrainingError, match=told):  # one mistake, and the next one
            settings = config(steps=2, accumulate=3)
            runs.train(settings, NextByte(module), batches, tmp_path / str(context))


def test_the_loss_falls_as_the_golden_curve(run):
    out, _, _ = run
    curve = [row["loss"] for row in lines(out)]
    golden = {0: 5.5629, 9: 3.7785, 19: 2.7232, 29: 2.5741}
    assert {step: curve[step] for step in golden} == pytest.approx(golden, abs=2e-3)


def test_metrics_are_complete_and_bits_are_nats(run):
    out, result, _ = run
    rows = lines(out)
    assert [row["step"] for row in rows] == list(range(1, 31))
    for row in rows:
        assert row["bits_per_byte"] == pytest.approx(row["loss"] / np.log(2), rel=1e-5)
        assert row["bytes_per_second"] > 0
        assert row["gradient_norm"] > 0
    assert [row["step"] for row in lines(out, "valid")] == [10, 20, 30]
    assert result.valid["bits_per_byte"] == lines(out, "valid")[-1]["bits_per_byte"]
    rates = [row["learning_rate"] for row in rows]
    assert rates.index(max(rates)) == 2 and rates[-1] < 0.01 * max(rates)


def test_the_model_is_exported(run):
    out, result, _ = run
    assert result.finished and result.step == 30
    model = loading.load(out / "model")
    assert model.config == tiny_runs.CONFIG
    assert_same(model.params, result.params)


def test_a_finished_run_is_left_alone(run):
    out, result, _ = run
    before = (out / "metrics.jsonl").read_text()
    again = runs.train(SETTINGS, PLAIN, batches, out, report=print)
    assert again.finished and again.step == 30 and (out / "metrics.jsonl").read_text() == before
    assert_same(again.params, result.params)


@pytest.mark.slow
def test_what_the_caller_holds_survives(tmp_path):
    mesh = sharding.make_mesh(MeshConfig())
    places = sharding.shardings(initial(), PLAIN.logical_axes(), mesh)
    params = jax.device_put(initial(), places)  # nothing is left to move
    before = jax.tree.map(np.array, params)
    settings = config(steps=2, save_every=0, validate_every=0)
    result = runs.train(settings, PLAIN, batches, tmp_path, initial=lambda: params, report=print)
    assert_same(params, before)
    assert not np.array_equal(result.params["head"]["kernel"], before["head"]["kernel"])


@pytest.mark.slow
def test_bfloat16_learns_with_float32_masters(tmp_path):
    settings = config(steps=12, dtype="bfloat16", validate_every=0, save_every=0)
    result = runs.train(settings, PLAIN, batches, tmp_path, report=print)
    curve = [row["loss"] for row in lines(tmp_path)]
    assert curve[-1] < curve[0] - 1
    assert {leaf.dtype for leaf in jax.tree.leaves(result.params)} == {jnp.dtype("float32")}


def test_a_loss_that_is_no_number_stops_the_run(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Broken(NextByte):
        def loss(self, params, ids, key):
            value, measured = super().loss(params, ids, key)
            return value / 0, measured

    with pytest.raises(TrainingError, match="at step 1"):
        runs.train(config(), Broken(), batches, tmp_path, report=print)
    assert lines(tmp_path)[0]["loss"] is None


def test_data_that_ends_is_told(tmp_path):
    few = lambda split, start: batches(split, start, end=2)  # noqa: E731
    with pytest.raises(TrainingError, match="ended after 2 of 30 steps"):
        runs.train(SETTINGS, PLAIN, few, tmp_path / "a", report=print)
    none = lambda split, start: batches(split, start, end=None if split == "train" else 0)  # noqa: E731
    with pytest.raises(TrainingError, match="nothing to validate on"):
        runs.train(SETTINGS, PLAIN, none, tmp_path / "b", report=print)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"log_every": 0}, "log_every must be at least 1"),
        ({"save_every": -1}, "save_every must be at least 0"),
    ],
)
def test_bad_settings_are_told(fields, told):
    with pytest.raises(ValueError, match=told):
        RunConfig(**fields)


# --- the step ---


def test_four_microbatches_are_one_batch_of_four():
    loss = lambda params, ids, key: PLAIN.loss(params, ids, key)  # noqa: E731
    params = initial()
    summed_over = jax.jit(
        lambda count: optimizer.accumulated_gradient(loss, params, IDS, KEY, microbatches=count),
        static_argnums=0,
    )
    parts = [summed_over(count) for count in (1, 4)]
    (whole, value, counted), (summed, mean, added) = parts
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), whole, summed)
    assert float(value) == pytest.approx(float(mean), abs=1e-6)
    assert metrics.means([counted]) == pytest.approx(metrics.means([added]), abs=1e-5)


@pytest.mark.slow
def test_microbatches_and_steps_have_their_own_noise():
    objective = NextByte(noise=0.5)
    same = jnp.broadcast_to(IDS[:1], (4, IDS.shape[1]))
    seen = []

    def loss(params, ids, key):
        jax.debug.callback(lambda x: seen.append(float(x)), jax.random.uniform(key))
        return objective.loss(params, ids, key)

    optimizer.accumulated_gradient(loss, initial(), same, KEY, microbatches=4)
    jax.effects_barrier()
    assert len(set(seen)) == 4
    first, again, second = (
        one_step(config(), objective, step=step)[1]["loss"] for step in (0, 0, 1)
    )
    assert first == again != second


def test_frozen_parameters_keep_their_bits_and_have_no_state():
    objective = NextByte(frozen=("trunk", "layers_0"))
    params = initial()
    state, _ = one_step(config(), objective)
    assert_same(state.params["trunk"]["layers_0"], params["trunk"]["layers_0"])
    after, before = (
        p["trunk"]["layers_1"]["mlp"]["down"]["kernel"] for p in (state.params, params)
    )
    assert not np.array_equal(after, before)
    kept = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(state.optimizer)]
    assert any("layers_1" in path for path in kept)
    assert not any("layers_0" in path for path in kept)


def test_only_kernels_decay():
    params = initial()
    transformation = optimizer.transformation(OptimizerConfig(steps=10, warmup=0, peak=0.1))
    nothing = jax.tree.map(jnp.zeros_like, params)
    updates, _ = jax.jit(transformation.update)(nothing, transformation.init(params), params)
    kernel = params["head"]["kernel"]
    np.testing.assert_allclose(updates["head"]["kernel"], -0.1 * 0.1 * kernel, rtol=1e-5)
    assert not updates["embed"]["embedding"].any() and not updates["norm"]["scale"].any()


def test_the_gradient_is_clipped():
    params = initial()
    loose, tight = (
        optimizer.transformation(
            OptimizerConfig(steps=10, warmup=0, eps=1.0, clip=clip, weight_decay=0)
        )
        for clip in (None, 1e-3)
    )
    grads = jax.tree.map(lambda x: jnp.full_like(x, 1.0), params)
    whole, clipped = (
        jax.jit(t.update)(grads, jax.jit(t.init)(params), params)[0] for t in (loose, tight)
    )
    ratio = whole["norm"]["scale"][0] / clipped["norm"]["scale"][0]
    norm = np.sqrt(sum(leaf.size for leaf in jax.tree.leaves(params)))
    assert ratio == pytest.approx(norm / 1e-3 / 2, rel=0.01)  # eps = 1: g/(1+g)


def test_the_learning_rate_warms_up_and_decays():
    rate = optimizer.learning_rate(OptimizerConfig(steps=100, warmup=10, peak=1.0, final=0.1))
    assert rate(0) == pytest.approx(1 / 11)
    assert rate(10) == pytest.approx(1.0)
    assert rate(55) == pytest.approx(0.55)
    assert rate(100) == pytest.approx(0.1)
    assert all(rate(i) < rate(i + 1) for i in range(10))


def test_the_patcher_is_never_cast():
    params = {"patcher": {"x": jnp.ones(2)}, "decoder": {"x": jnp.ones(2), "n": jnp.ones(2, int)}}
    cast = train_loop.cast(params, "bfloat16")
    assert cast["patcher"]["x"].dtype == jnp.float32
    assert cast["decoder"]["x"].dtype == jnp.bfloat16
    assert cast["decoder"]["n"].dtype == params["decoder"]["n"].dtype


# --- metrics ---


def test_matmul_flops_counts_products_loops_and_branches():
    def function(x, flag):
        x, _ = jax.lax.scan(lambda x, _: (x @ x, None), x, None, length=5)
        return jax.lax.cond(flag, lambda x: x @ x @ x, lambda x: x, jnp.sin(x))

    traced = jax.jit(function).trace(jnp.ones((4, 4)), True)
    assert metrics.matmul_flops(traced.jaxpr) == 7 * 2 * 4**3


def test_means_weigh_by_count():
    first = {"a": (jnp.float32(6), jnp.float32(2)), "b": (0.0, 0.0)}
    second = {"a": (jnp.float32(6), jnp.float32(1)), "b": (0.0, 0.0)}
    assert metrics.means([first, second]) == {"a": 4.0}


def test_the_peak_is_known_or_left_out():
    assert metrics.peak_flops("NVIDIA H200") == 989e12
    assert metrics.peak_flops("TPU v5 lite") == 197e12
    assert metrics.peak_flops("another") is None
