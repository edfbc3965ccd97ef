"""A small model learns the laws of a large one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import load
from bytelax.models.byte_lm import ByteLM
from bytelax.training import runs
from bytelax.training.objectives import Distillation, NextByte
from tests.helpers import models_for_tests as models
from tests.helpers import tiny_runs

STUDENT = ByteLM(tiny_runs.CONFIG)


def ids():
    return jnp.asarray(models.random_text(2, 33, eos=False))


@pytest.mark.slow
def test_a_student_that_is_its_teacher_has_nothing_to_learn():
    objective = Distillation(STUDENT, STUDENT, weight=1.0)
    own = NextByte(STUDENT).init(jax.random.key(0))
    gradient, metrics = jax.grad(objective.loss, has_aux=True)(
        own | {"teacher": own}, ids(), jax.random.key(1)
    )
    assert float(metrics["divergence"][0]) < 1e-4
    assert max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient)) < 1e-6


@pytest.mark.slow
def test_the_loss_is_the_share_of_each():
    teacher = models.model(models.BASE)
    params = NextByte(STUDENT).init(jax.random.key(0)) | {"teacher": teacher.params}

    def loss(objective, params):
        return float(jax.jit(objective.loss)(params, ids(), jax.random.key(1))[0])

    losses = [
        loss(Distillation(STUDENT, teacher.module, weight), params) for weight in (0.0, 0.25, 1.0)
    ]
    plain = loss(NextByte(STUDENT), Distillation(STUDENT, STUDENT).model_params(params))
    np.testing.assert_allclose(losses[0], plain, rtol=1e-6)
    np.testing.assert_allclose(losses[1], 0.75 * losses[0] + 0.25 * losses[2], rtol=1e-6)
    p = np.asarray(jax.nn.softmax(teacher.logits(ids()[:, :-1])), np.float64)
    q = np.asarray(
        jax.nn.softmax(jax.jit(NextByte(STUDENT).logits)(params, ids()[:, :-1])), np.float64
    )
    expected = (p * (np.log(p + 1e-30) - np.log(q))).sum(-1).mean()
    np.testing.assert_allclose(losses[2], expected, rtol=1e-4)


@pytest.mark.slow
def test_the_student_alone_is_exported_and_the_teacher_stays(tmp_path):
    init = jax.jit(NextByte(STUDENT).init)
    taught = init(jax.random.key(7))
    objective = Distillation(STUDENT, STUDENT)
    result = runs.train(
        tiny_runs.config(steps=6),
        objective,
        tiny_runs.batches,
        tmp_path,
        initial=lambda: init(jax.random.key(0)) | {"teacher": taught},
    )
    jax.tree.map(np.testing.assert_array_equal, result.params["teacher"], taught)
    student = load(tmp_path / "model")
    assert "teacher" not in student.params
    jax.tree.map(
        np.testing.assert_array_equal, student.params, objective.model_params(result.params)
    )


def test_a_weight_that_is_no_share_is_refused():
    with pytest.raises(ValueError, match="share"):
        Distillation(STUDENT, STUDENT, weight=1.5)
