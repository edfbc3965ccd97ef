"""Text that is appended to a decoding is continued as by a fresh start on the whole text.

Bit for bit where nothing was generated before it, as all of it is then read in windows of the
prefill, and with byte transformers wherever the compiled kernels run; elsewhere up to rounding.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import native

from bytelax import vocab
from bytelax.decode import Empty, Method, Params, Sampling, Stops, Text, stopping
from bytelax.systems import DraftModelDrafter
from bytelax.targets.blt import BLTTarget
from bytelax.targets.byte_lm import ByteLMTarget
from bytelax.testing import TableTarget, table
from tests.helpers import models_for_tests as models
from tests.helpers import setups

ROWS, BUFFER = 3, 160
FIRST = np.array([40, 9, 23], np.int32)
NEXT = [np.array([17, 0, 30], np.int32), np.array([1, 26, 9], np.int32)]
BUDGETS = [np.array(each, np.int32) for each in ([12, 7, 9], [9, 14, 6], [10, 3, 12])]
MIXED = Sampling.of(ROWS, temperature=np.array([0.0, 1.0, 0.7]), allow_eos=False)
COLD = jnp.asarray(np.zeros(ROWS, np.float32))
GREEDY = dataclasses.replace(MIXED, temperature=COLD)  # by the same program


CASES = (
    setups.SETUPS
    | setups.LOSSY
    | {
        "plain": setups.on_lm(Empty()),
        "plain, cut patches": setups.on_blt(Empty(), setups.cut_blt),
    }
)


def of_name(name):
    """A case with windows of the prefill that a text may be shorter or longer than."""
    setup = CASES[name]()
    sizes = {"prefill_width": 16}
    if isinstance(setup.target, BLTTarget):
        sizes["prefill_chunk"] = 4
    return setup._replace(target=dataclasses.replace(setup.target, **sizes))


each = setups.each(
    names=CASES,
    fast=["medusa"],
    slow=[
        "plain", "lookup", "blt-s", "blt-dv", "draft model", "several", "eagle", "eagle tree",
        "early exit", "dflash",
    ],
)  # fmt: skip


def ids_for(seed):
    """Random bytes of which each repeats some."""
    ids = np.random.default_rng(seed).integers(0, setups.VALUES, (ROWS, 40))
    return (ids + vocab.OFFSET).astype(np.int32)


def first_text():
    ids = np.zeros((ROWS, BUFFER), np.int32)
    ids[:, 1:41] = ids_for(0)
    ids[:, 0] = vocab.BOS
    return Text(jnp.asarray(ids), jnp.asarray(FIRST))


def turn(nth):
    return Text(jnp.asarray(ids_for(1 + nth)), jnp.asarray(NEXT[nth]))


def functions(method, params):
    """`init`, `append` and `decode`, compiled."""
    seeds = jnp.arange(5, 5 + ROWS, dtype=jnp.uint32)

    @jax.jit
    def init(text, budget, law):
        return method.init(
            params, text, budget=budget, seeds=seeds, sampling=law, stops=Stops.of([]),
            log_probs=True, origins=True,
        )  # fmt: skip

    @functools.partial(jax.jit, donate_argnums=0)
    def append(decoding, more, budget):
        return method.append(params, decoding, more, budget=budget)

    return init, append, jax.jit(functools.partial(method.decode, params))


@functools.cache
def of_case(name):
    """Its target, and what is compiled for all tests of it."""
    setup = of_name(name)
    return setup.target, *functions(setup.method(), setup.params)


def output(decoding):
    """Of each row the ids behind the prompt, why it ended, and what is known of the ids."""
    rows, decoding = [], jax.device_get(decoding)  # slices of a device are compiled
    for row in range(ROWS):
        where = slice(int(decoding.prompt[row]), int(decoding.text.length[row]))
        ids, known = (x[row, where] for x in (decoding.text.ids, decoding.log_probs))
        rows.append((ids.tolist(), int(decoding.ended[row]), known))
    return rows


def assert_alike(one, other, *, exact):
    for (ids, ended, known), (others, reason, told) in zip(one, other, strict=True):
        assert ids == others and ended == reason and ids
        np.testing.assert_allclose(known, told, rtol=0, atol=0 if exact else 1e-5)


@each
def test_a_turn_is_a_fresh_start_on_the_whole_text(name):
    """Three turns; rows get texts of any length, none and more than a window of the prefill."""
    target, init, append, decode = of_case(name)
    # Greedy, as chance falls on other drafts: those of a turn do not begin where others do.
    decoding = decode(init(first_text(), BUDGETS[0], GREEDY))
    for nth in range(2):
        length = np.asarray(decoding.text.length) + NEXT[nth]
        decoding = append(decoding, turn(nth), BUDGETS[nth + 1])
        assert (decoding.text.length == length).all()
        assert (decoding.log_probs[np.arange(ROWS), length - 1] == 0)[NEXT[nth] > 0].all()
        fresh = decode(init(decoding.text, BUDGETS[nth + 1], GREEDY))
        decoding = decode(decoding)
        exact = (
            native.available()
            and isinstance(target, ByteLMTarget)
            and name not in setups.TO_ROUNDING
        )
        assert_alike(output(decoding), output(fresh), exact=exact)
        np.testing.assert_array_equal(decoding.counts.bytes, fresh.counts.bytes)


@each
def test_a_prompt_in_two_parts_is_the_prompt_bit_for_bit(name):
    """With any kernels: all of it is read in windows of the prefill. Drafts are the same, too."""
    target, init, append, decode = of_case(name)
    none = np.zeros(ROWS, np.int32)
    parts = append(init(first_text(), none, MIXED), turn(0), none)
    parts = append(parts, turn(1), BUDGETS[0])
    fresh = init(parts.text, BUDGETS[0], MIXED)
    parts, fresh = decode(parts), decode(fresh)
    assert_alike(output(parts), output(fresh), exact=True)
    for name in ("rounds", "drafted", "accepted", "accepted_by_position"):
        np.testing.assert_array_equal(getattr(parts.counts, name), getattr(fresh.counts, name))
    assert target.passes(parts.state).keys() == target.passes(fresh.state).keys()
    for mine, its in zip(*(target.passes(x.state).values() for x in (parts, fresh)), strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("drafts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_eos_is_taken_back(drafts):
    """The draft model has not read it either, though its row stood still beside others."""
    chain = models.chain(b"abcdefgh", loop=False)
    target, params = chain.target(), Params(chain.params, chain.params if drafts else ())
    method = Method(target, DraftModelDrafter(chain.target(), 2) if drafts else Empty())
    text = Text.of([b"g", b"a", b"c"], length=64)
    init, append, decode = functions(method, params)
    law = Sampling.of(ROWS, temperature=0.0)
    decoding = decode(init(text, np.array([20, 7, 20], np.int32), law))
    reasons = stopping.BY_EOS, stopping.BY_LENGTH, stopping.BY_EOS
    assert decoding.ended.tolist() == [*reasons]
    more = Text.of([b"ac", b"b", b""], length=8, bos=False)
    decoding = append(decoding, more, 20)
    assert decoding.ended.tolist() == [stopping.RUNNING, stopping.RUNNING, stopping.BY_EOS]
    fresh = init(decoding.text, np.zeros(ROWS, np.int32), law)
    for mine, its in zip(_caches(decoding), _caches(fresh), strict=True):
        np.testing.assert_allclose(mine, its, rtol=0, atol=1e-6)
    decoding = decode(decoding)
    rows = zip(decoding.text.ids, decoding.text.length, strict=True)
    assert [ids[:length].tolist() for ids, length in rows] == [
        vocab.encode(text, eos=True) for text in (b"ghacdefgh", b"abcdefghbcdefgh", b"cdefgh")
    ]
    assert (decoding.ended == stopping.BY_EOS).all()
    if drafts:  # every draft is right, and was read from the right text
        least = decoding.counts.bytes[:2] - decoding.counts.rounds[:2]
        assert (decoding.counts.accepted[:2] >= least).all()


def _caches(decoding):
    """What target and draft model hold of the first two texts, without their last byte."""
    read = np.arange(64) < np.asarray(decoding.text.length)[:2, None] - 1
    states = [decoding.state, *([decoding.draft_state.state] if decoding.draft_state else [])]
    return [
        np.where(read[:, None, :, None], part[:2, :, :64], 0)
        for state in states
        for part in jax.tree.leaves(state.caches)
    ]


@pytest.mark.slow
def test_samples_share_a_prefill_and_nothing_else():
    """What one is donated to leaves the others as they were; of their bytes: test_requests.py."""
    setup = of_name("blt-s")
    method, params = setup.method(), setup.params
    decode = jax.jit(functools.partial(method.decode, params), donate_argnums=0)
    seeds = jnp.arange(6, dtype=jnp.uint32) + 40
    law = Sampling.of(ROWS, temperature=1.0, allow_eos=False)
    begin = functions(method, params)[0](first_text(), np.full(ROWS, 9), law)
    several = decode(begin.repeated(2, seeds))
    once = decode(begin.repeated(1, seeds[::2]))
    np.testing.assert_array_equal(once.text.ids, several.text.ids[::2])
    assert len({ids.tobytes() for ids in np.asarray(several.text.ids)}) == 6
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((begin, seeds)))


@pytest.mark.slow
def test_states_that_were_not_compiled_may_be_donated():
    chain = models.chain(b"abcd")
    method, params = Method(chain.target()), Params(chain.params)
    decode = jax.jit(functools.partial(method.decode, params), donate_argnums=0)
    decoding = decode(method.init(params, Text.of([b"a"], length=32), budget=2))
    more = Text.of([b"a"], length=2, bos=False)
    decoding = decode(method.append(params, decoding, more, budget=2))
    ids = decoding.text.ids[0, : decoding.text.length[0]].tolist()
    assert vocab.decode(ids) == b"abcabc"


def test_a_target_that_cannot_go_on_is_told():
    class Own(TableTarget):
        resumes = False

        def prefill(self, params, text):
            return super().prefill(params, text)

    method, params = Method(Own()), Params(table(3, 0))
    text, more = Text.of([b"\0"], length=8), Text.of([b"\1"], length=2, bos=False)
    decoding = jax.eval_shape(functools.partial(method.init, budget=1), params, text)
    with pytest.raises(TypeError, match=r"Own\.prefill takes no state to go on from"):
        jax.eval_shape(functools.partial(method.append, budget=1), params, decoding, more)
