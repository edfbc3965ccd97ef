"""A `Method`: what it refuses, and that it is one value of pure functions."""

import dataclasses
import functools
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.dispatch import traced_for

import bytelax
from bytelax import decode, systems
from bytelax.decode import (
    Draft,
    Empty,
    Method,
    Params,
    Sampling,
    Text,
    contract,
    lossless,
    stopping,
)
from bytelax.running.engine import Engine
from bytelax.targets.byte_lm import ByteLMTarget
from bytelax.testing import TableDrafter, TableTarget, table
from tests.helpers import models_for_tests as models
from tests.helpers.marks import slow

PARAMS = Params(table(3, 13), table(3, 1))
WARM = {"temperature": 1.0}


def text(rows=2):
    ids = jnp.full((rows, 16), decode.Text.of([b"a"], length=2).ids[0, 0]).at[:, 1].set(5)
    return Text(ids, jnp.full(rows, 2))


def begun(method, **how):
    """The shapes of a decoding: what is refused is refused before anything runs."""
    return jax.eval_shape(
        lambda params, text: method.init(params, text, budget=3, **how), PARAMS, text()
    )


@pytest.mark.slow
def test_rounds_are_what_decode_takes():
    """Also where the loop carries the numbers of a row as one array, with what is recorded."""
    method = Method(TableTarget(), TableDrafter(2))
    how = {"budget": 9, "sampling": Sampling.of(2, **WARM)}
    how |= {"log_probs": True, "origins": True}

    def both(platform):
        @jax.jit
        def run(params, text):
            def step(decoding, _):
                return method.round(params, decoding), None

            begin = method.init(params, text, **how)
            stepped, _ = jax.lax.scan(step, begin, None, length=9)  # rows that ended stand still
            return stepped, method.decode(params, begin)

        with traced_for(platform):
            return run(PARAMS, text())

    chex.assert_trees_all_equal(*both("cpu"), *both("gpu"))


def test_greedy_acceptance_does_not_sample():
    method = Method(TableTarget(), TableDrafter(2), decode.greedy)
    begun(method)
    with pytest.raises(ValueError, match="accept=greedy takes the likeliest bytes"):
        begun(method, sampling=Sampling.of(2, **WARM))


def test_windows_hold_drafts_and_fit_into_caches():
    target = models.model(models.BYTE_LM).target()
    assert Method(target, Empty(3)).window == 4
    with pytest.raises(ValueError, match=r"window must lie in 4\.\.1024, got 3: a round drafts 3"):
        Method(target, Empty(3), window=3)
    narrow = ByteLMTarget(target.module, window=3)
    with pytest.raises(ValueError, match="hold windows of 3 bytes, not of 4"):
        Method(narrow, Empty(3))
    assert Method(narrow, Empty(1)).verifier.window == 3


class Star(TableDrafter):
    """Every byte may follow the pending one."""

    def propose(self, inputs, draft_state):
        draft, state = super().propose(inputs, draft_state)
        return Draft(draft.ids, draft.length, parents=jnp.zeros_like(draft.ids)), state


class HalfPrecision(TableDrafter):
    def drawn(self, logits):
        return super().drawn(logits).astype(jnp.bfloat16)

    declared = drawn


class Counting(Empty):
    """Its state is a count of rounds."""

    def init(self, inputs):
        return {"rounds": jnp.zeros(len(inputs.text.length), jnp.int32)}


class OtherDtype(Counting):
    def commit(self, inputs, draft_state, trial, count):
        return {"rounds": draft_state["rounds"] + 0.5}


class OtherTree(Counting):
    def propose(self, inputs, draft_state):
        return Empty.propose(self, inputs, draft_state)[0], draft_state["rounds"]


@dataclasses.dataclass(frozen=True)
class Proposes(Empty):
    """A drafter that returns the same each time."""

    made: Any = dataclasses.field(default=None, compare=False)

    def propose(self, inputs, draft_state):
        return self.made


def unchecked(**fields):
    """What a drafter returns, with a draft that knows nothing of its types."""
    draft = object.__new__(Draft)
    fields = {"ids": jnp.zeros((2, 2), int), "length": jnp.ones(2, int)} | fields
    for name, value in fields.items():
        object.__setattr__(draft, name, value)
    return Proposes(2, made=(draft, ()))


def an_array(draft, log_probs, uniforms):
    return log_probs.argmax(-1)


SIDE_BY_SIDE = systems.ParallelDrafter(TableDrafter(2), 2)
NO_DRAFT = r"Proposes\.propose must return a Draft and the drafter's"
DRAFT = r"Proposes\.propose, Draft\."


@pytest.mark.parametrize(
    ("drafter", "accept", "error", "says"),
    [
        (Star(2), lossless, ValueError, "block_verification judges chains, but Star proposes tr"),
        (TableDrafter(2), decode.Tree(2), ValueError, "Tree judges trees, but TableDrafter propo"),
        (Star(2), decode.KSeq(2), ValueError, r"KSeq\(many=2\) cannot judge the drafts of Star"),
        (SIDE_BY_SIDE, decode.KSeq(4), ValueError, r"KSeq\(many=4\) cannot judge .* Parallel"),
        (TableDrafter(2), an_array, TypeError, "rule an_array must .* as decode.follow does"),
        (
            unchecked(ids=jnp.zeros((2, 3), int)), lossless, ValueError,
            rf"{DRAFT}ids: must have shape \(2, 2\), not \(2, 3\)",
        ),
        (
            unchecked(length=jnp.ones((2, 1))), lossless, ValueError,
            r"Draft\.length: must have shape \(2,\), not \(2, 1\)",
        ),
        (
            unchecked(log_probs=jnp.zeros((2, 2, 5))), lossless, ValueError,
            rf"{DRAFT}log_probs: must have shape \(2, 2, 7\)",
        ),
        (
            unchecked(ids=jnp.zeros((2, 2))), lossless, TypeError,
            rf"{DRAFT}ids: must be integers, not float32",
        ),
        (HalfPrecision(2), lossless, TypeError, r"log_probs: must be float32, not bfloat16"),
        (Proposes(2, made=jnp.zeros((2, 2), int)), lossless, TypeError, NO_DRAFT),
        (
            Proposes(2, made=Draft(jnp.zeros((2, 2), int), jnp.ones(2, int))), lossless,
            TypeError, NO_DRAFT,
        ),
        (Proposes(2, made=(jnp.zeros(2), ())), lossless, TypeError, NO_DRAFT),
        (
            OtherDtype(2), lossless, TypeError,
            r"OtherDtype: state\['rounds'\] is int32\[2\] from init, and float32",
        ),
        (
            OtherTree(2), lossless, TypeError,
            r"OtherTree: state\['rounds'\] is int32\[2\] from init, and missing after",
        ),
    ],
)  # fmt: skip
def test_what_breaks_the_contract_is_told(drafter, accept, error, says):
    method = Method(TableTarget(), drafter, accept)
    with pytest.raises(error, match=says):
        jax.eval_shape(method.decode, PARAMS, begun(method, sampling=Sampling.of(2, **WARM)))


def test_a_model_is_no_target():
    with pytest.raises(
        TypeError,
        match=r"Model is not a subclass of decode\.Target: for a model, take its target",
    ):
        contract.check_target(models.model(models.BYTE_LM))


def test_drafters_that_lack_something_are_told():
    class Half:
        draft_length = 2

        def init(self, inputs):
            return ()

    with pytest.raises(TypeError, match=r"Half is not a subclass of decode\.Drafter"):
        contract.check_drafter(Half())

    @dataclasses.dataclass(frozen=True)
    class Unhashable(Empty):
        table: Any = ()

    with pytest.raises(TypeError, match=r"Unhashable is not hashable: .* frozen dataclass"):
        Method(TableTarget(), Unhashable(2, table=[]))


def test_a_buffer_without_room_is_refused():
    method = Method(TableTarget(), TableDrafter(2))
    with pytest.raises(ValueError, match="buffers of 16 ids have no room for 16 after a prompt"):
        jax.jit(method.init, static_argnames="budget")(PARAMS, text(), budget=16)
    with pytest.raises(ValueError, match="BOS and a prompt are 3 ids, in a buffer of 2"):
        Text.of([b"ab"], length=2)


def test_a_row_ends_with_its_buffer():
    method = Method(TableTarget(), TableDrafter(2))
    full = dataclasses.replace(text(), length=jnp.array([2, 13]))
    law = Sampling.of(2, allow_eos=False)

    @jax.jit
    def written(params, text):
        return method.decode(params, method.init(params, text, budget=15, sampling=law))

    decoding = written(PARAMS, full)
    assert decoding.text.length.tolist() == [16, 16]
    assert decoding.counts.bytes.tolist() == [14, 3]
    assert decoding.ended.tolist() == [stopping.BY_LENGTH] * 2
    more = Text(jnp.full((2, 1), 5), jnp.zeros(2, int))
    appended = jax.jit(functools.partial(method.append, budget=4))(PARAMS, decoding, more)
    assert appended.ended.tolist() == [stopping.BY_LENGTH] * 2


def test_a_method_for_another_model_is_refused():
    one, other = models.model(models.BYTE_LM), models.model(models.BYTE_LMS["window"])
    with pytest.raises(ValueError, match="another model"):
        bytelax.generate(one, [b"a"], method=Method(other.target()))
    with pytest.raises(ValueError, match="only methods given by name take options"):
        bytelax.generate(one, [b"a"], method=Method(one.target()), draft_length=3)


class Told(NamedTuple):
    """What a drafter may have for parameters."""

    a: object
    b: object


def propose_a(inputs):
    rows = len(inputs.text.length)
    return Draft(jnp.full((rows, 2), 4 + ord("a")), jnp.full(rows, 2))


class Own(Empty):
    def propose(self, inputs, draft_state):
        return propose_a(inputs), draft_state


@pytest.mark.parametrize(
    ("params", "weights"),
    [
        (jnp.ones(3), 3),
        slow(np.float32(1), 1),
        slow(None, 0),
        ([jnp.ones(3), {"embedding": jnp.ones((2, 3))}], 3),
        slow(Told(jnp.ones((2, 2)), None), 4),
    ],
)
def test_parameters_of_a_drafter_are_any_pytree(params, weights):
    """A bare array used to end in an IndexError once all had been written."""
    model = models.model(models.SMALLEST)
    method = Method(model.target(), Own(2))
    out = bytelax.generate(model, [b"a"], method=method, draft_params=params, max_new_bytes=2)
    plain = bytelax.generate(model, [b"a"], max_new_bytes=2, window=3)
    assert out.bytes == plain.bytes and out.stats.drafted
    assert Engine.of(model, method=method, draft_params=params).weights[-1] == weights


@pytest.mark.parametrize("leaf", [1.5, "abc", object(), True])
def test_parameters_of_a_drafter_are_arrays(leaf):
    model = models.model(models.SMALLEST)
    method = Method(model.target(), Own(2))
    with pytest.raises(ValueError, match=r"draft_params\['a'\]\[0\] is not an array but of type"):
        bytelax.generate(model, [b"a"], method=method, draft_params={"a": [leaf]})


@pytest.mark.parametrize("count", [0, slow(-7), slow(99)])
def test_a_rule_that_counts_wrongly_comes_to_an_end(count):
    """One that emits nothing would run for ever, one that emits too much beyond the window."""

    def accept(draft, log_probs, uniforms):
        rows, places, _ = log_probs.shape
        none = jnp.zeros(rows, jnp.int32)
        return decode.Emitted(jnp.full((rows, places), 5), none + count, none)

    method = Method(TableTarget(), TableDrafter(2), accept)
    decoding = jax.jit(lambda params: method.init(params, text(), budget=7))(PARAMS)
    go_on = jax.jit(method.round)
    for _ in range(7):
        decoding = go_on(PARAMS, decoding)
    assert (decoding.ended == stopping.BY_LENGTH).all()
    np.testing.assert_array_equal(decoding.text.length, decoding.prompt + 7)
    np.testing.assert_array_equal(decoding.text.ids[:, 2:9], 5)


def test_texts_of_prompts():
    text = Text.of([[5], [1, 2], b"a", bytearray(b"ab")], length=4)
    assert text.ids.tolist() == [[5, 0, 0, 0], [1, 2, 0, 0], [1, 101, 0, 0], [1, 101, 102, 0]]
    assert text.length.tolist() == [1, 2, 2, 3]
    assert text.pending[:, 0].tolist() == [5, 2, 101, 102]
