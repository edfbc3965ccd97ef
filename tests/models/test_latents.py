"""What latents are worth: each ablation against the decoder run by hand, and the gate itself."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import vocab
from bytelax.models.blt import BLT, latents
from bytelax.training.objectives import BLTD, CorruptionConfig, NextByte
from tests.helpers import models_for_tests
from tests.helpers.marks import slow

ROOT = pathlib.Path(__file__).parents[2]
IDS = models_for_tests.random_text(3, 33)


@functools.cache
def small():
    """A model, and a function of its parameters and of ids."""
    config = models_for_tests.VARIANTS["own_embedding"]
    model = models_for_tests.model(models_for_tests.replace(config, decoder={"layers": 1}))
    return model, jax.jit(functools.partial(latents.bits_by_latents, model.module))


def bits(params):
    sums = small()[1](params, jnp.asarray(IDS))
    return {name: float(total / count) for name, (total, count) in sums.items()}


OBJECTIVES = NextByte, functools.partial(BLTD, corruption=CorruptionConfig(block_sizes=(4,)))


@pytest.mark.parametrize(
    ("late", "name", "objective"),
    [
        (1.0, "stale_1", OBJECTIVES[0]),
        slow(1.0, "stale_1", OBJECTIVES[1]),
        *(slow(0.0, "own", objective) for objective in OBJECTIVES),
    ],
)
def test_the_training_loss_reads_no_patch_late_or_all_of_them(late, name, objective):
    model, _ = small()
    loss = jax.jit(objective(model.module, late=late).loss)
    total, count = loss(model.params, jnp.asarray(IDS), jax.random.key(0))[1]["bits_per_byte"]
    assert bits(model.params)[name] == pytest.approx(float(total / count), rel=1e-6)


def test_latents_that_are_replaced_change_the_loss():
    found = bits(small()[0].params)
    for name in found.keys() - {"own"}:
        assert abs(found[name] - found["own"]) > 1e-3, name


def test_latents_that_the_decoder_ignores_are_worth_nothing():
    params = jax.tree.map(lambda x: x, small()[0].params)
    params["decoder"]["split"]["kernel"] = jnp.zeros_like(params["decoder"]["split"]["kernel"])
    found = bits(params)
    assert found == pytest.approx(dict.fromkeys(found, found["own"]), abs=1e-6)


def test_slots_without_a_patch_are_no_part_of_any_ablation():
    z = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    count = np.array([3, 2])
    garbage = np.where(np.arange(5)[:, None] < count[:, None, None], z, np.float32(np.nan))

    @jax.jit
    def replaced(z, count):
        return {name: replace(z, count) for name, replace in latents.ABLATIONS.items()}

    both = (jax.device_get(replaced(each, count)).items() for each in (z, garbage))
    for (name, clean), (_, dirty) in zip(*both, strict=True):
        for row, closed in enumerate(count):
            np.testing.assert_array_equal(clean[row, :closed], dirty[row, :closed], err_msg=name)


def test_another_text_is_the_next_one_and_stale_is_earlier():
    z = jnp.arange(2 * 4 * 1, dtype=jnp.float32).reshape(2, 4, 1)
    count = jnp.array([4, 2])
    assert latents.another_text(z, count)[0, :, 0].tolist() == [4, 5, 4, 5]
    assert latents.another_text(z, count)[1, :2, 0].tolist() == [0, 1]
    assert latents.stale(1)(z, count)[0, :, 0].tolist() == [0, 0, 1, 2]
    assert latents.mean(z, count)[0, 0, 0] == pytest.approx((0 + 1 + 2 + 3 + 4 + 5) / 6)


def test_a_share_of_late_patches_is_none_all_or_a_choice_for_each_patch():
    z = jnp.arange(2 * 50, dtype=jnp.float32).reshape(2, 50, 1)
    count, key = jnp.array([50, 50]), jax.random.key(0)
    assert (latents.late(0.0, key)(z, count) == z).all()
    assert (latents.late(1.0, key)(z, count) == latents.stale(1)(z, count)).all()
    moved = latents.late(0.3, key)(z, count) != z
    assert 10 <= moved.sum() <= 50 and (moved[0] != moved[1]).any()


def own_text(rows, length=511):
    """Prose and Python of this repository, which no bundled model was trained on."""
    files = [*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("bytelax/*.py"))]
    text = b"".join(file.read_bytes() for file in files)
    begins = np.linspace(0, len(text) - length, rows).astype(int)
    return jnp.asarray([vocab.encode(text[begin : begin + length]) for begin in begins])


def bundled_blts():
    return [
        path.parent.name
        for path in sorted((ROOT / "bytelax" / "assets").glob("*/config.json"))
        if json.loads(path.read_text())["model_type"] == "bytelax-blt"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", bundled_blts())
def test_the_bundled_blt_needs_its_latents(name):
    """The gate: without it every figure of a BLT method may be one of a byte transformer."""
    model = bytelax.load(name)
    assert isinstance(model.module, BLT)
    run = functools.partial(latents.bits_by_latents, model.module)
    sums = jax.jit(run)(model.params, own_text(8))
    cost = {name: float((total - sums["own"][0]) / count) for name, (total, count) in sums.items()}
    assert cost["mean"] >= 0.15
    assert cost["other"] >= 0.15 and cost["stale_4"] > 0.05
