"""Muon's updates are orthogonal, one matrix at a time; a run with a cooldown can be made longer."""

import functools
import zlib

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bytelax.pods import sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.training import objectives, optimizer, runs, train_state
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.train_state import TrainingError
from tests.helpers import models_for_tests, tiny_runs

flat = functools.partial(flatten_dict, sep="/")
MUON = OptimizerConfig(name="muon", warmup=0, cooldown=0, muon_peak=1.0, weight_decay=0, clip=None)


@pytest.fixture(scope="module")
def params():
    return models_for_tests.model(models_for_tests.VARIANTS["stride"]).params


@functools.lru_cache
def gradient_of(name, shape):
    """Rows of very different sizes."""
    noise = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    sizes = np.logspace(0, -1, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    return (noise * sizes).astype(np.float32)


@pytest.fixture(scope="module")
def updates(params):
    return first_updates(params)


def first_updates(params, *, scale=1.0):
    """The updates of the first step by path, divided by the learning rate."""
    flat_gradients = {path: scale * gradient_of(path, x.shape) for path, x in flat(params).items()}
    gradients = unflatten_dict(flat_gradients, sep="/")
    return {path: -np.asarray(x) for path, x in flat(_update(params, gradients)).items()}


@jax.jit
def _update(params, gradients):
    transformation = optimizer.transformation(MUON)
    return transformation.update(gradients, transformation.init(params), params)[0]


def is_hidden(path):
    return path.endswith("kernel") and "head" not in path


def matrices(path, kernel):
    """The linear maps that share a kernel, each as [in, out]."""
    *_, module, _ = path.split("/")
    width = kernel.shape[0]
    if module == "qkv":  # [D, key heads, query heads of each and k and v, H]
        return [kernel[:, :, i].reshape(width, -1) for i in range(kernel.shape[2])]
    if module == "key_value":  # [D, k or v, key heads, H]
        return [kernel[:, i].reshape(width, -1) for i in range(2)]
    if module == "gate_up":
        return [kernel[:, i] for i in range(2)]
    if module == "out":  # [heads, H, D]
        return [kernel.reshape(-1, kernel.shape[-1])]
    return [kernel.reshape(width, -1)]


def test_updates_of_hidden_matrices_are_orthogonal_one_by_one(updates):
    count = 0
    for path, update in updates.items():
        if not is_hidden(path):
            continue
        gradient = gradient_of(path, update.shape)
        for got, matrix in zip(matrices(path, update), matrices(path, gradient), strict=True):
            left, _, right = np.linalg.svd(matrix, full_matrices=False)
            wanted = left @ right * np.sqrt(max(1, matrix.shape[1] / matrix.shape[0]))
            # Five iterations leave the singular values between about 0.7 and 1.2.
            error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
            assert error < 0.3, (path, error)
            count += 1
    assert count == 4 * (4 + 1 + 2 + 1) + 3 * (1 + 2 + 1) + 3  # blocks, cross-attentions, others


def test_an_update_of_muon_does_not_depend_on_the_size_of_its_gradient(params, updates):
    small = first_updates(params, scale=1e-5)
    for path in filter(is_hidden, updates):
        np.testing.assert_allclose(small[path], updates[path], atol=0.02, err_msg=path)


def test_muon_leaves_embeddings_norms_and_the_head_to_adam(updates):
    for path, update in updates.items():
        sizes = np.abs(update)  # Adam's first update has one size everywhere
        assert (sizes.max() < 1.01 * sizes.min()) == (not is_hidden(path)), path


def test_moments_of_muon_lie_where_their_parameters_do():
    objective = objectives.NextByte(models_for_tests.model(models_for_tests.PLAIN).module)
    mesh = sharding.make_mesh(MeshConfig(fsdp=2, tensor=2))
    transformation = optimizer.transformation(MUON)
    state = jax.eval_shape(
        lambda key: train_state.new_state(objective.init(key), transformation, objective.trainable),
        jax.random.key(0),
    )
    places = train_state.state_shardings(state, objective.logical_axes(), mesh)
    spec_of = {path: place.spec for path, place in flat(places.params).items()}
    seen = set()
    for path, place in jax.tree_util.tree_leaves_with_path(places.optimizer):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        for parameter, spec in spec_of.items():
            if name.endswith("/" + parameter):
                assert place.spec == spec, name
                seen.add(parameter)
    trained = flat(optimizer.partition(state.params, objective.trainable)[0])
    assert seen == {name for name, x in trained.items() if x is not None}


def test_the_rate_is_constant_until_the_cooldown():
    config = OptimizerConfig(steps=10, warmup=2, cooldown=4, peak=1.0, final=0.5)
    rates = [float(optimizer.learning_rate(config)(step)) for step in range(11)]
    rising, level = [1 / 3, 2 / 3], [1.0] * 5
    np.testing.assert_allclose(rates, [*rising, *level, 0.875, 0.75, 0.625, 0.5], rtol=1e-6)


@pytest.mark.slow
def test_a_run_with_a_cooldown_can_be_made_longer(tmp_path):
    def train(out, steps, cooldown):
        settings = tiny_runs.config(steps=steps, cooldown=cooldown, validate_every=0, save_every=0)
        objective = tiny_runs.NextByte()
        return runs.train(settings, objective, tiny_runs.batches, tmp_path / out, report=print)

    train("longer", 4, 0)  # a constant rate to its end
    tiny_runs.assert_same(train("longer", 8, 3).params, train("whole", 8, 3).params)
    # Without a cooldown, in the cooldown, shorter than it is, and with one that had begun by now.
    for steps, cooldown in ((9, None), (12, 3), (7, 0), (9, 3)):
        with pytest.raises(TrainingError, match="holds a run with optimizer"):
            train("longer", steps, cooldown)


def test_the_default_warm_up_fits_into_the_run():
    for steps, warmup in ((1, 0), (20, 2), (1000, 100), (5000, 100)):
        assert OptimizerConfig(steps=steps).warmup_steps == warmup
    assert OptimizerConfig(steps=20, warmup=20).warmup_steps == 20
