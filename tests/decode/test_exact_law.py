"""The loop leaves the target's law as it is: enumerated, for every rule and drafter; and faults.

Another drafter: a function that returns a `Setup`, as a line of `SETUPS`.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import testing, vocab
from bytelax.compiling import own_jit
from bytelax.decode import (
    Drafter,
    Emitted,
    Empty,
    Method,
    Params,
    Sampling,
    Tree,
    acceptance,
    block_verification,
    certain,
    follow,
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
from bytelax.decode.unmasking import ONE_STEP, confidence
from bytelax.options import METHODS
from bytelax.systems import (
    BlockDiffusionDrafter,
    BlockInOrderDrafter,
    BltSDrafter,
    DFlashDrafter,
    ParallelDrafter,
    blt_d,
)
from bytelax.targets.blt import BLTTarget
from bytelax.targets.byte_lm import ByteLMTarget
from bytelax.testing import (
    TableDrafter,
    TableTarget,
    assert_lossless,
    distance,
    exact_law,
    target_law,
)
from bytelax.testing.chance import Chance
from bytelax.testing.exact_law import batch_of
from tests.helpers import heads_of_a_blt, self_drafting_models
from tests.helpers.marks import exhaustive, slow
from tests.helpers.models_for_tests import BYTE_LM, VARIANTS, model, replace

table = functools.cache(testing.table)
PROMPT = [vocab.BOS, vocab.OFFSET, vocab.OFFSET + 1]
WARM = {"temperature": 1.0}
CUT = {"temperature": 0.8, "top_p": 0.9}
EXACT = 1e-6
FAULTY = 1e-3


class Setup(NamedTuple):
    """What is enumerated: a target and a drafter with weights."""

    target: Any
    drafter: Any
    params: Params

    def law(self, accept, *, further=0, **how):
        """In a window that holds `further` places behind the drafts."""
        window = self.drafter.draft_length + 1 + further
        return exact_law(Method(self.target, self.drafter, accept, window), self.params, **how)


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


SMALL_BLT = replace(
    VARIANTS["own_embedding"], vocab_size=7, patcher={"vocab_size": 7}, patching={}, block_size=3
)


def blt(*, drafter):
    """A BLT of three byte values that drafts for itself."""
    small = model(SMALL_BLT, scale=2.0)
    target = BLTTarget(small.module, chunk=1, prefill_width=4, prefill_chunk=2)
    return Setup(target, drafter(3), Params(small.params))


def one_by_one(length):
    """A block filled from several passes, in any order."""
    return BlockDiffusionDrafter(length, confidence(0.9))


def in_one_step(length):
    return BlockDiffusionDrafter(length, ONE_STEP, latent="refresh")


def with_heads(*, make, of=heads_of_a_blt.blt):
    """A BLT of three byte values that drafts with heads."""
    small = of()
    target = BLTTarget(small.module, chunk=1, prefill_width=4, prefill_chunk=2)
    return Setup(target, make(), Params(small.params))


def for_itself(*, make):
    """A byte transformer of three byte values that drafts for itself."""
    drafter, own = make()
    params = Params(self_drafting_models.trunk().params, own)
    return Setup(self_drafting_models.target(), drafter, params)


TABLES = {
    "three bytes": drafts(3),
    "ragged, cooler": drafts(3, temperature=0.6, top_p=0.9, ragged=True),
    "likeliest": drafts(3, temperature=0.0),
    "likeliest, ragged": drafts(2, temperature=0.0, ragged=True),
    "hot, four values": functools.partial(
        tables, drafter=TableDrafter(1, temperature=2.0), byte_values=4
    ),
}
MODELS = {
    "past the boundary": functools.partial(blt, drafter=BltSDrafter),
    "one by one": functools.partial(blt, drafter=one_by_one),
    "in one step": functools.partial(blt, drafter=in_one_step),
    **{
        make.__name__: functools.partial(for_itself, make=make)
        for make in (
            *self_drafting_models.CHAINS,
            *self_drafting_models.HANDED_OVER,
            *self_drafting_models.FOR_ANY,
        )
    },
    **{
        f"{make.__name__} of a blt": functools.partial(with_heads, make=make)
        for make in heads_of_a_blt.DRAFTERS
    },
    **{
        f"unsure: {name}": functools.partial(
            with_heads, make=lambda drafter=drafter: drafter, of=of
        )
        for name, (of, drafter) in heads_of_a_blt.UNSURE.items()
    },
    **{
        make.__name__: functools.partial(with_heads, make=make, of=heads_of_a_blt.with_block_table)
        for make in heads_of_a_blt.IN_ORDER
    },
    "predicted latents": functools.partial(
        with_heads, make=heads_of_a_blt.predicted_latents, of=heads_of_a_blt.with_latents
    ),
}
SETUPS = TABLES | MODELS
# Of those that draft otherwise from one another; the others are exhaustive.
KINDS = [
    "past the boundary", "one by one", "composed", "handed_over", "layer_skip", "medusa",
    "two_byte", "eagle", "draft_model", "lookup", "dflash of a blt",
    "unsure: a block, with confidence", "block_in_order", "predicted latents",
]  # fmt: skip
AGAIN = [name for name in MODELS if name not in KINDS]
FEW_TABLES = ["three bytes", "ragged, cooler", "hot, four values"]
# The setups that draft as each lossless method with a name does. A tree has a test of its own.
OF_METHODS = {
    "ar": [],  # what all others are compared with
    "tuned": [],  # one of the others
    "lookup": ["lookup"],
    "draft-model": ["draft_model"],
    "spectr": [],
    "blt-s": ["past the boundary", "predicted latents"],
    "blt-dv": ["one by one", "in one step", "block_in_order"],
    "early-exit": ["early_exit", "exit_head", "handed_over"],
    "composed": ["composed", "composed_handed_over"],
    "layer-skip": ["layer_skip"],
    "medusa": ["medusa", "medusa of a blt"],
    "two-byte": ["two_byte", "two_byte_of_the_middle"],
    "eagle": ["eagle", "eagle of a blt", "unsure: a layer"],
    "dflash": ["dflash of a blt", "unsure: a block"],
}


KNOWN: dict[tuple, tuple] = {}  # with the weights, whose id is a part of the key


def alone(setup, new_bytes, law):
    """The law of a target; one for all that draft for it."""
    target, _, params = setup
    key = target, id(params.target), new_bytes, tuple(law.items())
    if key not in KNOWN:
        how = {"prompt": PROMPT, "new_bytes": new_bytes, "rows": 64, **law}
        KNOWN[key] = params.target, target_law(Method(target), params, **how)
    return KNOWN[key][1]


def error(build, accept, law, new_bytes=3, further=0, **loop_law):
    """How far the loop is from the target alone; `loop_law` differs from `law` in a fault only."""
    how = {"prompt": PROMPT, "new_bytes": new_bytes, "further": further}
    setup = build()
    got = setup.law(accept, **how, **(law | loop_law))
    assert abs(sum(got.values()) - 1) < EXACT
    return distance(got, alone(setup, new_bytes, law))


def each(accept, law, names, *, fast, others=pytest.mark.slow):
    """Cases of one rule and law; what is not named to be fast takes seconds more to compile."""
    return (pytest.param(name, accept, law, marks=() if name in fast else others) for name in names)


def test_every_lossless_method_is_enumerated():
    assert {name for name, method in METHODS.items() if method.lossless} == OF_METHODS.keys()
    for setups in OF_METHODS.values():
        assert SETUPS.keys() >= {*setups} and (not setups or {*setups} & {*KINDS})
    assert self_drafting_models.several in self_drafting_models.TREES  # `spectr`


@pytest.mark.parametrize(
    ("setup", "accept", "law"),
    [
        *each(rejection, CUT, FEW_TABLES, fast=("three bytes",)),
        *each(block_verification, CUT, FEW_TABLES, fast=("ragged, cooler",)),
        *each(rejection, WARM, ["three bytes"], fast=()),
        *each(block_verification, WARM, ["three bytes"], fast=()),
        *each(rejection, CUT, KINDS, fast=(), others=pytest.mark.exhaustive),
    ],
)
def test_the_law_of_the_target(setup, accept, law):
    assert error(SETUPS[setup], accept, law) < EXACT


@pytest.mark.parametrize(
    ("setup", "accept", "law"),
    [
        *each(rejection, CUT, ["likeliest", "likeliest, ragged"], fast=()),
        *each(block_verification, CUT, TABLES, fast=("likeliest, ragged",)),
        *each(block_verification, CUT, KINDS, fast=()),
        *each(block_verification, CUT, AGAIN, fast=(), others=pytest.mark.exhaustive),
    ],
)
def test_the_law_of_the_target_in_a_wider_window(setup, accept, law):
    assert error(SETUPS[setup], accept, law, further=2) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("make", self_drafting_models.TREES, ids=lambda make: make.__name__)
def test_the_law_of_the_target_from_trees(make):
    build = functools.partial(for_itself, make=make)
    assert error(build, self_drafting_models.TREES[make], CUT, further=2) < EXACT


SEVERAL = ParallelDrafter(TableDrafter(2), 2)


@pytest.mark.parametrize(
    ("drafter", "further"),
    [
        pytest.param(SEVERAL, 0, marks=pytest.mark.slow),
        pytest.param(SEVERAL, 2, marks=pytest.mark.slow),
        pytest.param(ParallelDrafter(TableDrafter(1), 2), 2, marks=pytest.mark.slow),
        (ParallelDrafter(TableDrafter(1), 2), 1),
        pytest.param(ParallelDrafter(TableDrafter(2, ragged=True), 2), 3, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_law_of_the_target_from_several_drafts(drafter, further):
    build = functools.partial(tables, drafter=drafter)
    assert error(build, lossless, CUT, further=further) < EXACT


@pytest.mark.parametrize(
    ("setup", "accept"),
    [
        ("three bytes", greedy),
        pytest.param("likeliest, ragged", greedy, marks=pytest.mark.slow),
        pytest.param("three bytes", rejection, marks=pytest.mark.slow),
        pytest.param("likeliest, ragged", block_verification, marks=pytest.mark.slow),
        pytest.param("three bytes", typical, marks=pytest.mark.slow),
    ],
)
def test_the_choices_of_the_target(setup, accept):
    assert error(SETUPS[setup], accept, {"temperature": 0.0}, new_bytes=5) < EXACT


@pytest.mark.slow
def test_without_eos():
    assert error(SETUPS["three bytes"], rejection, CUT | {"allow_eos": False}, new_bytes=4) < EXACT


@pytest.mark.slow
def test_a_real_vocabulary():
    assert error(byte_lm, rejection, {"temperature": 0.8, "top_k": 3}, 2) < EXACT


@pytest.mark.parametrize("accept", [pytest.param(typical, marks=pytest.mark.slow), take_all])
def test_lossy_rules_are_seen_as_such(accept):
    assert error(SETUPS["three bytes"], accept, WARM) > FAULTY


class RawQ(TableDrafter):
    def declared(self, logits):
        return process_logits(logits, Sampling.of(len(logits), temperature=1.0))


class OtherTemperature(TableDrafter):
    def declared(self, logits):
        return process_logits(logits, Sampling.of(len(logits), temperature=1.0, top_p=self.top_p))


class ForgetsTheLast(TableTarget):
    def commit(self, trial, count):
        return super().commit(trial, jnp.maximum(count - 1, 0))


@pytest.mark.parametrize(
    ("accept", "wrong"),
    [
        (rejection, {"drafter": RawQ(2, temperature=0.5, top_p=0.8)}),
        pytest.param(
            block_verification,
            {"drafter": RawQ(2, temperature=0.5, top_p=0.8)},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            rejection,
            {"drafter": OtherTemperature(2, temperature=2.0)},
            marks=pytest.mark.slow,
        ),
        pytest.param(rejection, {"target": ForgetsTheLast()}, marks=pytest.mark.slow),
    ],
    ids=["raw q", "raw q, block", "temperature", "commit"],
)
def test_a_wrong_part_is_seen(accept, wrong):
    wrong = functools.partial(tables, **wrong)
    got = wrong().law(accept, prompt=PROMPT, new_bytes=3, **CUT)
    assert distance(got, alone(tables(), 3, CUT)) > FAULTY


class WithoutTheTable(DFlashDrafter):
    """The fault: bytes are drawn with the table, and said to be drawn without it."""

    def propose(self, inputs, draft_state):
        draft, after = super().propose(inputs, draft_state)
        heads = inputs.target_params["heads"]
        block = jax.tree.map(lambda x: x, heads["dflash"])
        block["right"] = jnp.zeros_like(block["right"])
        silent = inputs.target_params | {"heads": heads | {"dflash": block}}
        told, _ = super().propose(dataclasses.replace(inputs, target_params=silent), draft_state)
        return dataclasses.replace(draft, log_probs=told.log_probs), after


@pytest.mark.exhaustive
def test_a_block_that_hides_its_table_is_seen():
    build = functools.partial(with_heads, make=lambda: WithoutTheTable(3))
    assert error(build, rejection, CUT, new_bytes=2) > FAULTY


class EndsForTheByteItDrops(DFlashDrafter):
    """The fault: whether a byte is drafted depends on the probability of that byte."""

    def propose(self, inputs, draft_state):
        draft, after = super().propose(inputs, draft_state)
        drawn = jnp.take_along_axis(draft.log_probs, draft.ids[..., None], axis=-1)[..., 0]
        likely = jnp.cumprod(drawn >= jnp.log(0.3), axis=1).sum(1)
        return dataclasses.replace(draft, length=likely), after


@pytest.mark.exhaustive
def test_an_end_that_depends_on_the_byte_it_drops_is_seen():
    build = functools.partial(with_heads, make=lambda: EndsForTheByteItDrops(3))
    assert error(build, rejection, CUT, new_bytes=2) > FAULTY


class ApartFromTheState(BlockInOrderDrafter):
    """The fault: the block table reads the state, and bytes are said to be drawn without that."""

    def propose(self, inputs, draft_state):
        draft, after = super().propose(inputs, draft_state)
        without = heads_of_a_blt.without_state(inputs.target_params)
        told, _ = super().propose(dataclasses.replace(inputs, target_params=without), draft_state)
        return dataclasses.replace(draft, log_probs=told.log_probs), after


@pytest.mark.exhaustive
def test_a_state_that_is_hidden_is_seen():
    build = functools.partial(
        with_heads, make=lambda: ApartFromTheState(3), of=heads_of_a_blt.with_block_table
    )
    assert error(build, rejection, CUT, new_bytes=2) > FAULTY


@pytest.mark.parametrize(
    ("purpose", "accept"),
    [
        ("ACCEPT", rejection),
        pytest.param("ACCEPT", block_verification, marks=pytest.mark.exhaustive),
        pytest.param("RESIDUAL", rejection, marks=pytest.mark.slow),
    ],
)
def test_a_shared_key_is_seen(monkeypatch, accept, purpose):
    monkeypatch.setattr(sampling, purpose, sampling.DRAFT)
    assert error(tables, accept, WARM) > FAULTY


@pytest.mark.parametrize(
    "accept", [rejection, pytest.param(block_verification, marks=pytest.mark.slow)]
)
def test_a_missing_residual_is_seen(monkeypatch, accept):
    monkeypatch.setattr(acceptance, "residual", lambda p, q: jnp.log(p))
    assert error(tables, accept, CUT) > FAULTY


@pytest.mark.slow
@pytest.mark.parametrize("accept", [rejection, block_verification])
def test_a_bonus_byte_of_the_place_before_is_seen(monkeypatch, accept):
    follow = acceptance.follow

    def off_by_one(draft, count, log_probs, uniforms):
        return follow(draft, count, log_probs.at[:, -1].set(log_probs[:, -2]), uniforms)

    monkeypatch.setattr(acceptance, "follow", off_by_one)
    assert error(tables, accept, CUT) > FAULTY


@pytest.mark.exhaustive
def test_a_law_of_bytes_filled_out_of_order_is_seen(monkeypatch):
    """They were drawn from it; verified by it, they change the output."""
    monkeypatch.setattr(blt_d, "filled_early", jnp.zeros_like)
    assert error(SETUPS["one by one"], rejection, WARM) > 100 * EXACT


@pytest.mark.exhaustive  # as a raw q is
def test_a_temperature_on_one_side_is_seen():
    """The drafter and the prefix reference use 0.8, the verifier 1."""
    drafter = TableDrafter(2, temperature=0.8, top_p=0.9)
    build = functools.partial(tables, drafter=drafter)
    assert error(build, rejection, CUT, temperature=1.0) > FAULTY


@pytest.mark.parametrize("edge", [0.1, 0.5, 0.9])
def test_a_number_used_in_another_way_is_noticed(edge):
    def program(batch):
        keys = sampling.row_keys(batch, jnp.zeros_like(batch, jnp.int32), sampling.DRAFT)
        return sampling.row_uniforms(keys, 1) < edge, ()

    with pytest.raises(AssertionError, match="used otherwise than in"):
        list(Chance(program, rows=4).outcomes(np.zeros(64, np.uint32)))


def test_parts_that_know_different_numbers_are_run_together():
    """The last row waits, and is run with both parts of the third, whose number is known."""

    def program(batch):
        keys = sampling.row_keys(batch, jnp.zeros_like(batch, jnp.int32), sampling.DRAFT)
        uniform = sampling.row_uniforms(keys, 1)[:, 0]
        return sampling.happens(jnp.where(batch == 0, 0.25, 1.0), uniform), ()

    found = np.zeros((4, 2))
    batch = np.array([1, 2, 0, 3], np.uint32)
    for happened, _, row, share in Chance(program, rows=3).outcomes(batch):
        np.add.at(found, (row, happened.astype(int)), share)
    np.testing.assert_allclose(found, [[0, 1], [0, 1], [0.75, 0.25], [0, 1]], atol=1e-6)


def nothing_is_kept(draft, log_probs, uniforms):
    """With the public functions, imported by name."""
    following = sample(log_probs[:, 0], uniforms[:, 1, 0])[:, None]
    kept = happens(jnp.zeros(len(following)), uniforms[:, 0, 0]).astype(jnp.int32)
    ids = jnp.pad(following, ((0, 0), (0, draft.ids.shape[1])))
    return Emitted(ids, 1 + kept, drafted=kept)


def test_a_rule_of_ones_own_may_import_what_it_draws_with():
    assert error(SETUPS["three bytes"], nothing_is_kept, CUT) < EXACT


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


SAMPLES = [(2048, 16), pytest.param(2**15, 32, marks=pytest.mark.exhaustive)]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "new_bytes"), SAMPLES)
@pytest.mark.parametrize("accept", [rejection, block_verification])
def test_real_random_numbers(accept, rows, new_bytes):
    assert abs(deviation(accept, rows, new_bytes)) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "new_bytes"), SAMPLES)
@pytest.mark.parametrize("purpose", ["ACCEPT", "RESIDUAL"])
def test_a_shared_key_is_seen_in_real_random_numbers(monkeypatch, purpose, rows, new_bytes):
    monkeypatch.setattr(sampling, purpose, sampling.DRAFT)
    assert deviation(rejection, rows, new_bytes) > 20


@dataclasses.dataclass(frozen=True)
class Uniform(TableDrafter):
    """A drafter without parameters, which is told how many ids there are."""

    ids: int = 7

    def propose(self, inputs, draft_state):
        level = dataclasses.replace(inputs, params=jnp.zeros((self.ids,) * 3))
        return super().propose(level, draft_state)


@pytest.mark.slow
def test_any_pair_can_be_certified():
    """As a user would."""
    assert_lossless(Method(TableTarget(), Uniform(2)), Params(table(3, 13)))


@pytest.mark.parametrize("positions", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_plain_decoding_is_certified_without_drafts(positions):
    assert_lossless(Method(TableTarget(), Empty(positions)), Params(table(3, 13)))


@acceptance.lossless_rule
def keeps_none(draft, log_probs, uniforms):
    """Lossless, and useless: what it keeps cannot be wrong."""
    return follow(draft, jnp.zeros_like(draft.length), log_probs, uniforms[:, 1])


class Never(TableDrafter):
    """A drafter that finds nothing to propose."""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        return dataclasses.replace(draft, length=jnp.zeros_like(draft.length)), draft_state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drafter", "rule"),
    [
        (TableDrafter(2), keeps_none),
        pytest.param(Never(2), rejection, marks=pytest.mark.exhaustive),
    ],
)
def test_a_rule_that_kept_nothing_is_not_certified(drafter, rule):
    method = Method(TableTarget(), drafter, rule)
    with pytest.raises(AssertionError, match="kept no drafted byte"):
        assert_lossless(method, Params(table(3, 13), table(3, 1)))


@pytest.mark.slow
def test_a_rule_that_refused_nothing_is_not_certified():
    drafts_the_law = Params(table(3, 13), table(3, 13))
    drafter = TableDrafter(2, temperature=0.8, top_p=0.9)
    with pytest.raises(AssertionError, match="no refusal was tested"):
        assert_lossless(Method(TableTarget(), drafter), drafts_the_law)


class ByRow(TableDrafter):
    """The fault: rows draw by their place in the batch."""

    def propose(self, inputs, draft_state):
        rolled = jnp.roll(inputs.key, 1, axis=0) if len(inputs.key) == 128 else inputs.key
        return super().propose(dataclasses.replace(inputs, key=rolled), draft_state)


@dataclasses.dataclass(frozen=True)
class Untrue(TableDrafter):
    """The fault: now and then it says that it drew from a flatter law."""

    when: str = ""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        batch, length = len(draft.length), inputs.text.length
        now = {
            "alone": jnp.full(batch, batch == 1),
            "row 100": jnp.arange(batch) == 100,
            "ring": length > 40,
        }[self.when]
        flat = process_logits(draft.log_probs, Sampling.of(batch, temperature=3.0))
        told = jnp.where(now[:, None, None], flat, draft.log_probs)
        return dataclasses.replace(draft, log_probs=told), draft_state


class ForgetsEos(TableTarget):
    """The fault: an EOS that was drafted and kept is not read."""

    def commit(self, trial, count):
        last = super().commit(trial, count)["last"]
        return {"last": jnp.where(last == vocab.EOS, vocab.BOE, last)}


class KeepsRefusedEos(TableTarget):
    """The fault: an EOS that was drafted and refused is read."""

    def commit(self, trial, count):
        refused = jnp.arange(trial.shape[1]) > count[:, None]
        eos = (refused & (trial == vocab.EOS)).any(1)
        return {"last": jnp.where(eos, vocab.EOS, super().commit(trial, count)["last"])}


class Wraps(TableTarget):
    """The fault: it forgets the byte before the last one once it has read 40 bytes in windows."""

    def prefill(self, params, text):
        return super().prefill(params, text) | {"read": jnp.zeros_like(text.length)}

    def extend(self, params, state, window, *, most=None, parents=None):
        last = jnp.where(state["read"] > 40, vocab.BOE, state["last"])
        logits, ids = super().extend(params, {"last": last}, window)
        return logits, (ids, state["read"])

    def commit(self, trial, count):
        ids, read = trial
        return super().commit(ids, count) | {"read": read + count}


@pytest.mark.parametrize(
    ("target", "drafter", "says"),
    [
        slow(
            TableTarget(),
            RawQ(2, temperature=0.5),
            r"the ids \(\d+, .*\) is off by [0-9.e-]+: the method is not lossless",
        ),
        slow(TableTarget(), ByRow(1), r"another order of the rows .* ids \[1, \d+.*\]"),
        slow(TableTarget(), Untrue(1, when="alone"), "in a batch of one row .*: the method is not"),
        exhaustive(TableTarget(), Untrue(1, when="row 100"), "another order of the rows"),
        exhaustive(
            TableTarget(), Untrue(1, when="ring"), "after 64 bytes: the method is not lossless"
        ),
        slow(Wraps(), TableDrafter(1), "after 64 bytes: the method is not lossless"),
        (ForgetsEos(), TableDrafter(1), r"an EOS .* after the ids \[1, .*2.*\]"),
        exhaustive(KeepsRefusedEos(), TableDrafter(1, temperature=0.0), "an EOS"),
    ],
    ids=lambda part: type(part).__name__ + getattr(part, "when", ""),
)
def test_what_is_not_lossless_is_told(target, drafter, says):
    with pytest.raises(AssertionError, match=says):
        assert_lossless(Method(target, drafter), Params(table(3, 13), table(3, 1)))


@acceptance.lossless_rule
def takes_the_last_place(draft, log_probs, uniforms):
    """The fault: what follows a whole draft is drawn at the last place of a window."""
    place = jnp.arange(log_probs.shape[1])[:, None] == draft.length[:, None, None]
    return rejection(draft, jnp.where(place, log_probs[:, -1:], log_probs), uniforms)


@pytest.mark.slow
def test_a_rule_that_is_wrong_in_wider_windows_is_told():
    method = Method(TableTarget(), TableDrafter(1), takes_the_last_place)
    with pytest.raises(AssertionError, match="a window of 4: the method is not lossless"):
        assert_lossless(method, Params(table(3, 13), table(3, 1)))


class FewerAlone(TableDrafter):
    """No fault: how long a draft is depends on the number of rows."""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        length = jnp.minimum(draft.length, 1 if len(draft.length) == 1 else 2)
        return dataclasses.replace(draft, length=length), draft_state


@pytest.mark.exhaustive
def test_drafts_that_depend_on_the_batch_are_certified():
    assert_lossless(Method(TableTarget(), FewerAlone(2)), Params(table(3, 13), table(3, 1)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "window"), [pytest.param(4, None, marks=pytest.mark.exhaustive), (10, 13)]
)
def test_trees_are_certified(nodes, window):
    """Of ten nodes, each takes a verdict and a number: more than any chain here."""
    method = Method(TableTarget(), Broom(nodes), Tree(2), window)
    assert_lossless(method, Params(table(3, 13)), new_bytes=2)


@pytest.mark.slow
@pytest.mark.parametrize("window", [pytest.param(None, marks=pytest.mark.exhaustive), 6])
def test_several_drafts_are_certified(window):
    method = Method(TableTarget(), ParallelDrafter(TableDrafter(1), 2), window=window)
    assert_lossless(method, Params(table(3, 13), table(3, 1)), new_bytes=2, top_k=2)


@dataclasses.dataclass(frozen=True)
class Broom(Drafter):
    """A tree: the pending byte has three children, and the first of them has all others."""

    draft_length: int

    def propose(self, inputs, draft_state):
        place = jnp.arange(self.draft_length)
        shape = len(inputs.text.length), self.draft_length
        ids = jnp.broadcast_to(vocab.OFFSET + place % 3, shape)
        parents = jnp.broadcast_to(jnp.where(place < 3, 0, 1), shape)
        return dataclasses.replace(certain(ids), parents=parents), draft_state
