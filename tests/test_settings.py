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
from tests.helpers import heads_of_a_blt, tiny_runs
from tests.helpers import models_for_tests as models
from tests.helpers import self_drafting_models as drafting

PROMPTS = [b"Ragged prompts: ", b"\x00\xff", "naïve 日本".encode()]
TEXTS = [b"\x00\xff\x80 not UTF-8 \xc3", b"", b"one and another"]
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


def block_model():
    return models.model(models.replace(models.VARIANTS["own_embedding"], block_size=3))


def small():
    return models.model(models.replace(models.BYTE_LM, trunk={"layers": 1}))


def plain(model):
    return "ar", {}


def named(name, **options):
    """Options that are functions make a model."""

    def of(model):
        made = {key: each() if callable(each) else each for key, each in options.items()}
        return name, made

    return of


def own(make, accept=decode.lossless):
    make = functools.cache(make)

    def of(model):
        made = make()
        drafter, params = made if isinstance(made, tuple) else (made, ())
        return decode.Method(model.target(), drafter, accept), {"draft_params": params}

    return of


# Models, and how they draft: a method and its options.
DRAFTED = {
    "draft model": (byte_lm, named("draft-model", draft_length=2, draft_model=small)),
    "past the boundary": (blt, named("blt-s", draft_length=2)),
}
# Of each way to draft one, the one that does most.
ALL = {
    "refreshed": (blt, named("blt-s", draft_length=2, latent="refresh")),
    "block by entropy": (block_model, named("blt-dv", block_size=3, unmask="entropy")),
    "kept block": (block_model, named("blt-d", block_size=3)),
    **{
        f"byte transformer, {make.__name__}": (
            drafting.trunk,
            own(make, drafting.TREES.get(make, decode.lossless)),
        )
        for make in (drafting.composed_handed_over, *drafting.TREES)
    },
    "BLT, block table": (heads_of_a_blt.with_block_table, own(heads_of_a_blt.IN_ORDER[-1])),
}


def written(model, how, temperature):
    """Bytes, reasons to stop, log-probabilities and origins of a continuation of each prompt."""
    model = bytelax.Model(model.module, model.params)  # without what it has cached
    method, options = how(model)
    out = bytelax.generate(
        model, PROMPTS, method=method, temperature=temperature, max_new_bytes=NEW, logprobs=True,
        origins=True, **options,
    )  # fmt: skip
    return [(one.bytes, one.stop, one.log_probs, one.origins.kind) for one in out.results]


def scored(model):
    model = bytelax.Model(model.module, model.params)
    return [one.log_probs for one in bytelax.score(model, TEXTS, window=63, batch=4).documents]


def in_own_program(model):
    """Texts after rounds under `jit` and `scan`."""

    @jax.jit
    def rounds(params, text):
        decoding = method.init(params, text, budget=NEW, sampling=law)
        return jax.lax.scan(
            lambda decoding, _: (method.round(params, decoding), None), decoding, None, length=3
        )[0].text

    method, params = (
        decode.Method(model.target(), systems.LookupDrafter(2, shortest=1)),
        (model.params, ()),
    )
    law = decode.Sampling.of(len(PROMPTS), temperature=0.9)
    text = rounds(decode.Params(*params), decode.Text.of(PROMPTS, length=32))
    return jax.device_get((text.ids, text.length))


def trained(tmp_path):
    """Parameters after a short run, in which random numbers matter."""
    settings = tiny_runs.config(steps=2, validate_every=1, save_every=0)
    objective = tiny_runs.NextByte(noise=0.5)
    result = runs.train(settings, objective, tiny_runs.batches, tmp_path, report=str)
    return jax.device_get(result.params)


@functools.cache
def by_default(function, which, *args):
    return function(which(), *args)


def assert_same(setting, function, which, *args):
    expected = by_default(function, which, *args)
    with SETTINGS[setting]():
        found = function(which(), *args)
    jax.tree.map(identical, found, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drafter", "setting"),
    [
        ("past the boundary", "together"),
        pytest.param("draft model", "together", marks=pytest.mark.exhaustive),
        pytest.param("draft model", "rbg", marks=pytest.mark.exhaustive),
        pytest.param("draft model", "x64", marks=pytest.mark.exhaustive),
    ],
)
def test_bytes_and_log_probabilities(drafter, setting):
    which, how = DRAFTED[drafter]
    assert_same(setting, written, which, how, MIXED)
    assert_same(setting, scored, which)


@pytest.mark.slow
def test_rounds_in_a_program_of_ones_own():
    assert_same("together", in_own_program, byte_lm)


KINDS = {
    "block by entropy", "byte transformer, composed_handed_over", "byte transformer, several",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "drafter",
    [pytest.param(one, marks=() if one in KINDS else pytest.mark.exhaustive) for one in ALL],
)
def test_every_drafter(drafter):
    which, how = ALL[drafter]
    assert_same("together", written, which, how, MIXED)


@pytest.mark.exhaustive  # a greedy row beside sampled ones: above
@pytest.mark.parametrize("drafter", DRAFTED)
def test_greedy_rows_alone(drafter):
    which, how = DRAFTED[drafter]
    assert_same("together", written, which, how, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "drafter",
    [pytest.param("draft model", marks=pytest.mark.exhaustive), "past the boundary"],
)
def test_on_a_mesh(drafter):
    which, _ = DRAFTED[drafter]
    on_mesh = lambda: which().on(sharding.make_mesh(MeshConfig(data=2)))  # noqa: E731
    assert_same("together", written, on_mesh, plain, MIXED)
    assert_same("together", scored, on_mesh)


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
    "exit": (drafting.trunk, lambda model: systems.EarlyExitDrafter(1, 2, hand_over=False)),
}


@pytest.mark.slow
@pytest.mark.parametrize("which", [pytest.param("BLT", marks=pytest.mark.exhaustive), "exit"])
def test_without_jit(which):
    """Every operation is a program of its own, so there are as few shapes as possible."""

    def look_inside():
        by_byte = {"prefill_width": 1} | ({"prefill_chunk": 1} if make is blt else {})
        target = dataclasses.replace(model.target(), **by_byte)
        out = bytelax.generate(
            model, [b"\x00", b"\x01\x02"], method=decode.Method(target, drafter(model)),
            temperature=0.9, max_new_bytes=2, logprobs=True, draft_params=params,
        )  # fmt: skip
        scores = bytelax.score(model, [b"\x00\x02"], window=2, batch=1).documents
        return out.bytes, [one.log_probs for one in (*out.results, *scores)]

    make, drafter = WITHOUT_JIT[which]
    model, params = make(), small().params if which == "draft model" else ()
    expected, likely = look_inside()
    with jax.disable_jit():
        found, as_likely = look_inside()
    assert found == expected
    for one, other in zip(as_likely, likely, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
