"""The loop leaves the target's law as it is: enumerated, for every rule and drafter; and faults."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import testing, vocab
from bytelax.compiling import own_jit
from bytelax.decode import (
    Emitted,
    Empty,
    Method,
    Params,
    Sampling,
    acceptance,
    block_verification,
    greedy,
    happens,
    lossless,
    process_logits,
    rejection,
    sample,
    sampling,
    take_all,
    typical,
)
from bytelax.options import METHODS
from bytelax.systems import DFlashDrafter, ParallelDrafter, blt_d
from bytelax.targets.byte_lm import ByteLMTarget
from bytelax.testing import TableDrafter, TableTarget, distance, exact_law, target_law
from bytelax.testing.exact_law import batch_of
from tests.helpers import heads_of_a_blt, setups
from tests.helpers.marks import slow
from tests.helpers.models_for_tests import BYTE_LM, model
from tests.helpers.setups import Setup

table = functools.cache(testing.table)
PROMPT = [vocab.BOS, vocab.OFFSET, vocab.OFFSET + 1]
WARM = {"temperature": 1.0}
CUT = {"temperature": 0.8, "top_p": 0.9}
EXACT = 1e-6
FAULTY = 1e-3


def tables(*, drafter=None, target=None, byte_values=3):
    drafter = drafter or TableDrafter(2)
    params = Params(table(byte_values, 13), table(byte_values, 1))
    return Setup(target or TableTarget(), drafter, params)


def byte_lm():
    """A real vocabulary, for laws that keep few of its ids."""
    lm = model(BYTE_LM)
    return Setup(ByteLMTarget(lm.module, prefill_width=8), Empty(2), Params(lm.params))


def drafts(*args, **options):
    return functools.partial(tables, drafter=TableDrafter(*args, **options))


TABLES = {
    "three bytes": drafts(3),
    "ragged, cooler": drafts(3, temperature=0.6, top_p=0.9, ragged=True),
    "likeliest": drafts(3, temperature=0.0),
    "likeliest, ragged": drafts(2, temperature=0.0, ragged=True),
    "hot, four values": functools.partial(
        tables, drafter=TableDrafter(1, temperature=2.0), byte_values=4
    ),
}
ALL = TABLES | setups.SETUPS
AGAIN = [name for name in setups.CHAINS if name not in setups.KINDS]
FEW_TABLES = ["three bytes", "ragged, cooler", "hot, four values"]

KNOWN: dict[tuple, tuple] = {}  # with the weights, whose id is a part of the key


def alone(setup, new_bytes, law):
    """The law of a target; one for all that draft for it."""
    target, params = setup.target, setup.params
    key = target, id(params.target), new_bytes, tuple(law.items())
    if key not in KNOWN:
        how = {"prompt": PROMPT, "new_bytes": new_bytes, "rows": 64, **law}
        KNOWN[key] = params.target, target_law(Method(target), params, **how)
    return KNOWN[key][1]


def law_of(setup, accept=lossless, *, further=0, **how):
    """The law of a drafter in a window that holds `further` places behind the drafts."""
    window = setup.drafter.draft_length + 1 + further
    return exact_law(Method(setup.target, setup.drafter, accept, window), setup.params, **how)


def error(setup, accept, law, new_bytes=3, further=0):
    """How far the loop is from the target alone."""
    got = law_of(setup, accept, further=further, prompt=PROMPT, new_bytes=new_bytes, **law)
    assert abs(sum(got.values()) - 1) < EXACT
    return distance(got, alone(setup, new_bytes, law))


def each(accept, law, names, *, fast=(), others=pytest.mark.slow):
    """Cases of one rule and law; what is not named to be fast takes seconds more to compile."""
    return (pytest.param(name, accept, law, marks=() if name in fast else others) for name in names)


def test_every_lossless_method_is_enumerated():
    methods = {name for name, method in METHODS.items() if method.lossless}
    assert methods == setups.OF_METHODS.keys()
    for names in setups.OF_METHODS.values():
        assert not names or {*names} & {*setups.KINDS, *setups.TREES}
        assert setups.SETUPS.keys() >= {*names}


@pytest.mark.parametrize(
    ("name", "accept", "law"),
    [
        *each(rejection, CUT, FEW_TABLES, fast=("three bytes",)),
        *each(block_verification, CUT, FEW_TABLES),
        *each(rejection, WARM, ["three bytes"]),
        *each(block_verification, WARM, ["three bytes"]),
        *each(rejection, CUT, setups.KINDS, others=pytest.mark.exhaustive),
    ],
)
def test_the_law_of_the_target(name, accept, law):
    assert error(ALL[name](), accept, law) < EXACT


@pytest.mark.parametrize(
    ("name", "accept", "law"),
    [
        *each(rejection, CUT, ["likeliest", "likeliest, ragged"]),
        *each(block_verification, CUT, TABLES, fast=("ragged, cooler",)),
        *each(block_verification, CUT, setups.KINDS),
        *each(block_verification, CUT, AGAIN, others=pytest.mark.exhaustive),
        *each(lossless, CUT, setups.TREES),
    ],
)
def test_the_law_of_the_target_in_a_wider_window(name, accept, law):
    assert error(ALL[name](), accept, law, further=2) < EXACT


@pytest.mark.parametrize(
    ("length", "ragged", "further"),
    [(1, False, 1), *(slow(*case) for case in ((2, False, 0), (1, False, 2), (2, True, 3)))],
)
def test_the_law_of_the_target_from_several_drafts(length, ragged, further):
    drafter = ParallelDrafter(TableDrafter(length, ragged=ragged), 2)
    assert error(tables(drafter=drafter), lossless, CUT, further=further) < EXACT


@pytest.mark.parametrize(
    ("name", "accept"),
    [
        slow("three bytes", greedy),
        slow("likeliest, ragged", greedy),
        slow("three bytes", rejection),
        slow("likeliest, ragged", block_verification),
        slow("three bytes", typical),
    ],
)
def test_the_choices_of_the_target(name, accept):
    assert error(TABLES[name](), accept, {"temperature": 0.0}, new_bytes=5) < EXACT


@pytest.mark.slow
def test_without_eos():
    law = CUT | {"allow_eos": False}
    assert error(TABLES["three bytes"](), rejection, law, new_bytes=4) < EXACT


@pytest.mark.slow
def test_a_real_vocabulary():
    assert error(byte_lm(), rejection, {"temperature": 0.8, "top_k": 3}, 2) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("accept", [typical, take_all])
def test_lossy_rules_are_seen_as_such(accept):
    assert error(TABLES["three bytes"](), accept, WARM) > FAULTY


# Faults: each changes the law by more than `FAULTY`.


def one_number(monkeypatch, purpose):
    monkeypatch.setattr(sampling, purpose, sampling.DRAFT)


def no_residual(monkeypatch):
    monkeypatch.setattr(acceptance, "residual", lambda p, q: jnp.log(p))


def a_bonus_of_the_place_before(monkeypatch):
    follow = acceptance.follow

    def off_by_one(draft, count, log_probs, uniforms):
        return follow(draft, count, log_probs.at[:, -1].set(log_probs[:, -2]), uniforms)

    monkeypatch.setattr(acceptance, "follow", off_by_one)


@pytest.mark.parametrize(
    ("plant", "accept"),
    [
        (functools.partial(one_number, purpose="ACCEPT"), rejection),
        slow(functools.partial(one_number, purpose="RESIDUAL"), rejection),
        slow(no_residual, rejection),
        slow(no_residual, block_verification),
        slow(a_bonus_of_the_place_before, rejection),
        slow(a_bonus_of_the_place_before, block_verification),
    ],
)
def test_a_planted_fault_is_seen(monkeypatch, plant, accept):
    plant(monkeypatch)
    assert error(tables(), accept, CUT) > FAULTY


def drawn_with(drafter, silence):
    """Bytes are drawn with a part of a network, and said to be drawn without it."""

    class Untold(type(drafter)):
        def propose(self, inputs, draft_state):
            draft, after = super().propose(inputs, draft_state)
            params = silence(inputs.target_params)
            told, _ = super().propose(
                dataclasses.replace(inputs, target_params=params), draft_state
            )
            return dataclasses.replace(draft, log_probs=told.log_probs), after

    return Untold(**vars(drafter))


def without_table(params):
    block = params["heads"]["dflash"]
    silent = block | {"right": jnp.zeros_like(block["right"])}
    return params | {"heads": params["heads"] | {"dflash": silent}}


class EndsForTheByteItDrops(DFlashDrafter):
    """Whether a byte is drafted depends on the probability of that byte."""

    def propose(self, inputs, draft_state):
        draft, after = super().propose(inputs, draft_state)
        drawn = jnp.take_along_axis(draft.log_probs, draft.ids[..., None], axis=-1)[..., 0]
        likely = jnp.cumprod(drawn >= jnp.log(0.3), axis=1).sum(1)
        return dataclasses.replace(draft, length=likely), after


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "faulty"),
    [
        ("dflash", lambda drafter: drawn_with(drafter, without_table)),
        ("blt-dv in order", lambda drafter: drawn_with(drafter, heads_of_a_blt.without_state)),
        ("dflash", lambda drafter: EndsForTheByteItDrops(3)),
    ],
)
def test_a_drafter_that_tells_another_law_is_seen(name, faulty):
    setup = ALL[name]()
    assert error(setup._replace(drafter=faulty(setup.drafter)), rejection, CUT, 2) > FAULTY


@pytest.mark.exhaustive
def test_a_law_of_bytes_filled_out_of_order_is_seen(monkeypatch):
    """They were drawn from it; verified by it, they change the output."""
    monkeypatch.setattr(blt_d, "filled_early", jnp.zeros_like)
    assert error(ALL["blt-dv"](), rejection, WARM) > 100 * EXACT


def nothing_is_kept(draft, log_probs, uniforms):
    """With the public functions, imported by name."""
    following = sample(log_probs[:, 0], uniforms[:, 1, 0])[:, None]
    kept = happens(jnp.zeros(len(following)), uniforms[:, 0, 0]).astype(jnp.int32)
    ids = jnp.pad(following, ((0, 0), (0, draft.ids.shape[1])))
    return Emitted(ids, 1 + kept, drafted=kept)


@pytest.mark.slow
def test_a_rule_of_ones_own_may_import_what_it_draws_with():
    assert error(tables(), nothing_is_kept, CUT) < EXACT


def deviation(accept, rows, new_bytes):
    """Standard deviations between chi-square of the generated bytes and its expectation.

    The target is a Markov chain, so each byte is a draw from the law of the two ids before it.
    """
    setup, law = tables(drafter=TableDrafter(3, temperature=0.8)), WARM | {"allow_eos": False}
    method = Method(setup.target, setup.drafter, accept)

    def generate(seeds):
        decoding = method.init(
            setup.params,
            batch_of([PROMPT], len(PROMPT) + new_bytes, rows),
            budget=new_bytes,
            seeds=seeds,
            sampling=Sampling.of(rows, **law),
        )
        return method.decode(setup.params, decoding).text.ids

    ids = np.asarray(own_jit(generate)(jnp.arange(rows, dtype=jnp.uint32)))
    size = len(setup.params.target)
    ids = ids[:, len(PROMPT) - 2 :]
    triples = np.stack([ids[:, :-2], ids[:, 1:-1], ids[:, 2:]]).reshape(3, -1)
    seen = np.bincount(np.ravel_multi_index(triples, (size,) * 3), minlength=size**3)
    seen = seen.reshape(size, size, size)
    p = np.exp(process_logits(setup.params.target, Sampling.of(size, **law)))
    expected = seen.sum(-1, keepdims=True) * p
    used = expected > 0
    assert not seen[~used].any()
    chi_square = ((seen - expected)[used] ** 2 / expected[used]).sum()
    freedom = (used.sum(-1) - 1)[used.any(-1)].sum()
    return (chi_square - freedom) / np.sqrt(2 * freedom)


@pytest.mark.slow
@pytest.mark.parametrize("accept", [rejection, block_verification])
def test_real_random_numbers(accept):
    assert abs(deviation(accept, 2048, 16)) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("purpose", ["ACCEPT", "RESIDUAL"])
def test_a_shared_key_is_seen_in_real_random_numbers(monkeypatch, purpose):
    one_number(monkeypatch, purpose)
    assert deviation(rejection, 2048, 16) > 20
