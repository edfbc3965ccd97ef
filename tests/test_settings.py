"""Settings of JAX that a program makes for its own sake change no byte and no log-probability."""

import contextlib
import dataclasses
import functools

import jax
import numpy as np
import pytest

import bytelax
from bytelax import decode, systems
from bytelax.pods import sharding
from bytelax.pods.configs import MeshConfig
from bytelax.testing import TableDrafter, TableTarget, assert_lossless, table
from bytelax.training import runs
from tests.helpers import models_for_tests as models
from tests.helpers import self_drafting_models as lms
from tests.helpers import setups, tiny_runs
from tests.helpers.marks import exhaustive

PROMPTS = [b"Ragged prompts: ", b"\x00\xff", "naïve 日本".encode()]
TEXTS = [b"\x00\xff\x80 not UTF-8 \xc3", b"", b"one and another"]
CASES = setups.SETUPS | setups.LOSSY
NEW, MIXED = 5, (0.0, 0.9, 0.9)  # bytes, and a greedy row beside sampled ones


@contextlib.contextmanager
def rbg():
    jax.clear_caches()  # they hold programs of any generator
    with jax.default_prng_impl("rbg"):
        yield
    jax.clear_caches()


@contextlib.contextmanager
def together():
    with contextlib.ExitStack() as stack:
        for setting in TRACED:
            stack.enter_context(SETTINGS[setting]())
        yield


TRACED = ("rbg", "threefry", "x64", "dtypes", "ranks", "guard")
SETTINGS = {
    "rbg": rbg,
    "threefry": lambda: jax.threefry_partitionable(False),
    "x64": lambda: jax.enable_x64(True),
    "dtypes": lambda: jax.numpy_dtype_promotion("strict"),
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "guard": lambda: jax.transfer_guard("disallow"),
    "together": together,
}
identical = functools.partial(np.testing.assert_array_equal, strict=True)  # dtypes too


def byte_lm():
    return models.model(models.BYTE_LMS["documents"])


def blt():
    return models.model(models.PLAIN)


def blt_on_a_mesh():
    return blt().on(sharding.make_mesh(MeshConfig(data=2)))


def without_cache(model):
    """The same model, which has laid out nothing yet."""
    return bytelax.Model(model.module, model.params, model.mesh)


def continued(which, prompts=PROMPTS, **how):
    """Bytes, reasons to stop, log-probabilities and origins of a continuation of each prompt."""
    model = which()
    out = bytelax.generate(
        without_cache(model), prompts,
        temperature=MIXED, max_new_bytes=NEW, logprobs=True, origins=True, **how,
    )  # fmt: skip
    return [(one.bytes, one.stop, one.log_probs, one.origins.kind) for one in out.results]


def drafted(name):
    """The same by a setup."""
    setup = CASES[name]()
    return continued(
        lambda: bytelax.Model(setup.target.module, setup.params.target),
        [b"\0\1\2\1\0", b"\2", b"\1\1\0"],
        method=setup.method(),
        draft_params=setup.params.drafter,
    )


def scored(which):
    model = without_cache(which())
    return [one.log_probs for one in bytelax.score(model, TEXTS, window=63, batch=4).documents]


def in_own_program():
    """Texts after rounds under `jit` and `scan`."""
    model = byte_lm()
    method = decode.Method(model.target(), systems.LookupDrafter(2, shortest=1))

    @jax.jit
    def rounds(params, text):
        decoding = method.init(params, text, budget=NEW, sampling=law)
        return jax.lax.scan(
            lambda decoding, _: (method.round(params, decoding), None), decoding, None, length=3
        )[0].text

    law = decode.Sampling.of(len(PROMPTS), temperature=0.9)
    text = rounds(decode.Params(model.params), decode.Text.of(PROMPTS, length=32))
    return jax.device_get((text.ids, text.length))


def trained(tmp_path):
    """Parameters after a short run, in which random numbers matter."""
    settings = tiny_runs.config(steps=2, validate_every=1, save_every=0)
    objective = tiny_runs.NextByte(noise=0.5)
    result = runs.train(settings, objective, tiny_runs.batches, tmp_path, report=str)
    return jax.device_get(result.params)


@functools.cache
def by_default(function, *args):
    return function(*args)


def assert_same(setting, function, *args):
    expected = by_default(function, *args)
    with SETTINGS[setting]():
        found = function(*args)
    jax.tree.map(identical, found, expected)


@setups.each(names=CASES, slow=["blt-s", "blt-dv", "composed, handed over", "several"])
def test_every_drafter(name):
    assert_same("together", drafted, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("setting", TRACED)
def test_each_setting_alone(setting):
    assert_same(setting, drafted, "draft model")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "args"),
    [
        (scored, [byte_lm]),
        (scored, [blt_on_a_mesh]),
        (continued, [blt_on_a_mesh]),
        (in_own_program, []),
    ],
)
def test_scores_meshes_and_programs_of_ones_own(function, args):
    assert_same("together", function, *args)


def test_rows_draw_by_their_own_seeds_with_any_generator():
    def rows(*seeds, stop=b"\xff\xff"):
        out = bytelax.generate(
            byte_lm(), [b"the same"] * 3, max_new_bytes=16, temperature=1e6, seeds=seeds,
            stop=[stop], allow_eos=False,
        )  # fmt: skip
        return out.bytes

    with rbg():
        first, *others = rows(7, 1, 2)
        assert rows(8, 1, 2)[1:] == others
        # The first row ends, and the others go on as they would have.
        assert rows(7, 1, 2, stop=first[:2]) == [b"", *others]
    assert rows(7, 1, 2) == [first, *others]
    assert len({first, *others}) == 3 and all(len(set(row)) > 8 for row in others)


@pytest.mark.slow
def test_certificate():
    with SETTINGS["x64"](), SETTINGS["dtypes"](), SETTINGS["ranks"]():
        assert_lossless(
            decode.Method(TableTarget(), TableDrafter(2)),
            decode.Params(table(3, 13), table(3, 1)),
        )


@pytest.mark.slow
def test_training(tmp_path):
    expected = trained(tmp_path / "default")
    with SETTINGS["together"](), jax.transfer_guard("allow"):
        found = trained(tmp_path / "set")
    jax.tree.map(identical, found, expected)


WITHOUT_JIT = {
    "BLT": (blt, lambda model: decode.Empty()),
    "exit": (lms.trunk, lambda model: systems.EarlyExitDrafter(1, 2, hand_over=False)),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", [exhaustive("BLT"), "exit"])
def test_without_jit(which):
    """Every operation is a program of its own, so there are as few shapes as possible."""

    def look_inside():
        by_byte = {"prefill_width": 1} | ({"prefill_chunk": 1} if make is blt else {})
        target = dataclasses.replace(model.target(), **by_byte)
        out = bytelax.generate(
            model, [b"\x00", b"\x01\x02"], method=decode.Method(target, drafter(model)),
            temperature=0.9, max_new_bytes=2, logprobs=True,
        )  # fmt: skip
        scores = bytelax.score(model, [b"\x00\x02"], window=2, batch=1).documents
        return out.bytes, [one.log_probs for one in (*out.results, *scores)]

    make, drafter = WITHOUT_JIT[which]
    model = make()
    expected, likely = look_inside()
    with jax.disable_jit():
        found, as_likely = look_inside()
    assert found == expected
    for one, other in zip(as_likely, likely, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
