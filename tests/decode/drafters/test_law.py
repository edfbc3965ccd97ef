"""Composed drafters leave the law of a sampled output as it is: many draws of one round.

Ids are 0, 1, 2. The laws of the drafters and of the target are tables over what was drafted.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.decode import (
    Draft,
    DraftInput,
    Sampling,
    Text,
    by_batch,
    certain,
    chain,
    extend_with,
    no_passes,
    rejection,
    sampling,
    stop_adaptively,
    stop_below,
)

VOCAB, ROWS = 3, 1 << 17
TEXT = Text(jnp.zeros((ROWS, 1), jnp.int32), jnp.ones(ROWS, jnp.int32))
KEYS = sampling.row_keys(jnp.arange(ROWS, dtype=jnp.uint32), TEXT.length, sampling.DRAFT)


def table(seed, depth):
    """The law of each place given the ids before it: f32[3, 3, ..., 3], one array a place."""
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(VOCAB), (VOCAB,) * place) for place in range(depth)]


# Arguments of what is compiled: as constants they would be folded, row by row.
TABLES = {seed: table(seed, 5) for seed in (1, 2, 9)}
TARGET = 9


def inputs_of(parts=0, *, tables=TABLES, keys=KEYS, text=TEXT):
    """For a drafter of so many parts; the tables are the target's parameters."""
    own = ((),) * parts
    return DraftInput(own, None, tables, (), text, Sampling.of(ROWS, temperature=1.0), keys)


def laws_of(tables, ids):
    """log f32[B, places, V] of the tables along `ids`."""
    rows = [jnp.asarray(one)[tuple(ids[:, :place].T)] for place, one in enumerate(tables)]
    rows = [jnp.broadcast_to(row, (len(ids), VOCAB)) for row in rows]
    return jnp.log(jnp.stack(rows, axis=1))


@dataclasses.dataclass(frozen=True)
class Tabled:
    """Draws ids by a table; if `sometimes`, in half of the rows."""

    seed: int
    draft_length: int
    sometimes: bool = False

    def init(self, inputs):
        return ()

    def propose(self, inputs, draft_state):
        uniforms = inputs.uniforms(self.draft_length + 1)
        ids = jnp.zeros((ROWS, 0), jnp.int32)
        tables = inputs.target_params[self.seed][: self.draft_length]
        for place in range(self.draft_length):
            law = laws_of(tables[: place + 1], ids)[:, -1]
            ids = jnp.concatenate([ids, sampling.sample(law, uniforms[:, place])[:, None]], axis=1)
        asleep = self.sometimes & (uniforms[:, -1] < 0.5)
        draft = Draft(
            ids=ids,
            length=jnp.where(asleep, 0, self.draft_length),
            log_probs=laws_of(tables, ids),
            passes=no_passes(ROWS),
        )
        return draft, ()

    def commit(self, inputs, draft_state, trial, count):
        return ()


@dataclasses.dataclass(frozen=True)
class Last:
    """Proposes the last id of the text over and over, without chance."""

    draft_length: int
    text_only = True

    def init(self, inputs):
        return ()

    def propose(self, inputs, draft_state):
        return certain(jnp.broadcast_to(inputs.text.pending, (ROWS, self.draft_length))), ()

    def commit(self, inputs, draft_state, trial, count):
        return ()


def uniforms_for(purpose, count):
    seeds = jnp.arange(ROWS, dtype=jnp.uint32)
    return sampling.row_uniforms(sampling.row_keys(seeds, TEXT.length, purpose), count)


def worst(drafter, parts=0):
    """Standard deviations between the most surprising frequency and the target's probability.

    Of the first two ids: those of the round, and the target's own where it emitted one alone.
    """

    @jax.jit
    def emit(tables, keys, text, uniforms, last):
        target = tables[TARGET][: drafter.draft_length + 1]
        inputs = inputs_of(parts, tables=tables, keys=keys, text=text)
        draft, _ = drafter.propose(inputs, drafter.init(inputs))
        ids, count, *_ = rejection(draft.written_out(VOCAB), laws_of(target, draft.ids), uniforms)
        following = sampling.sample(jnp.log(target[1])[ids[:, 0]], last)
        return ids[:, 0], jnp.where(count > 1, ids[:, 1], following), count

    judged = [
        uniforms_for(purpose, drafter.draft_length + 1)
        for purpose in (sampling.ACCEPT, sampling.RESIDUAL)
    ]
    last = uniforms_for(3, 1)[:, 0]
    first, second, count = map(
        np.asarray, emit(TABLES, KEYS, TEXT, jnp.stack(judged, axis=1), last)
    )
    assert 1.1 < count.mean() < drafter.draft_length + 1
    found = np.bincount(VOCAB * first + second, minlength=VOCAB**2)
    target = TABLES[TARGET]
    p = (target[0][:, None] * target[1]).ravel()
    return (abs(found - ROWS * p) / np.sqrt(ROWS * p * (1 - p))).max()


LOSSLESS = {
    "stop_below": (stop_below(Tabled(1, 3), 0.4), 0),
    "stop_adaptively": (stop_adaptively(Tabled(1, 3), 0.4), 0),
    "chain": (chain(Tabled(1, 2, sometimes=True), Tabled(2, 3)), 2),
    "chain_of_stopped": (chain(Tabled(1, 2, sometimes=True), stop_below(Tabled(2, 3), 0.4)), 2),
    "extend_with": (extend_with(stop_below(Tabled(1, 2), 0.4), Last(2)), 2),
    "by_batch": (by_batch(Tabled(1, 3), {1: 3, 100: 2}), 0),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("chain", "extend_with") else pytest.mark.slow)
        for name in LOSSLESS
    ],
)
def test_the_law_is_that_of_the_target(name):
    assert worst(*LOSSLESS[name]) < 4.5


class CutBefore(type(stop_below(Last(1), 0))):
    """The fault: the byte that fell below is dropped."""

    def propose(self, inputs, draft_state):
        draft, draft_state = self.drafter.propose(inputs, draft_state)
        draft = draft.written_out()
        sure = jnp.cumprod(draft.confidence >= self.threshold, axis=1).sum(1)
        return dataclasses.replace(draft, length=jnp.minimum(draft.length, sure)), draft_state


class Uncertain(Last):
    """The fault: chosen without chance, and says that it was drawn."""

    def propose(self, inputs, draft_state):
        draft, _ = super().propose(inputs, draft_state)
        return dataclasses.replace(draft, log_probs=jnp.full((*draft.ids.shape, VOCAB), -1.1)), ()


@pytest.mark.parametrize(
    ("faulty", "parts"),
    [
        (CutBefore(Tabled(1, 3), 0.4), 0),
        (extend_with(stop_below(Tabled(1, 2), 0.4), Uncertain(2)), 2),
    ],
)
def test_faults_are_found(faulty, parts):
    assert worst(faulty, parts) > 10


def test_parts_do_not_share_random_numbers():
    """A chain of one drafter twice: the second draws anew."""
    drafter = chain(Tabled(1, 2, sometimes=True), Tabled(1, 2))
    inputs = inputs_of(2)
    both, _ = drafter.propose(inputs, ((), ()))
    alone, _ = Tabled(1, 2, sometimes=True).propose(inputs, ())
    first, _ = Tabled(1, 2).propose(inputs, ())
    for one, other in itertools.combinations((both, alone, first), 2):
        same = (np.asarray(one.ids) == np.asarray(other.ids)).all(1).mean()
        assert same == 1 if other is first and one is alone else same < 0.9


def test_what_needs_the_state_continues_nothing():
    with pytest.raises(ValueError, match="Tabled cannot continue another's draft"):
        extend_with(Last(1), Tabled(1, 2))
    with pytest.raises(ValueError, match="Chain cannot continue"):
        extend_with(Last(1), chain(Last(1), Tabled(1, 2)))
    assert extend_with(Last(1), chain(Last(1), Last(2))).draft_length == 3


def test_the_first_with_a_draft():
    """Row by row, and the second is not asked when all rows have one."""

    @dataclasses.dataclass(frozen=True)
    class Counting(Tabled):
        def propose(self, inputs, draft_state):
            draft, _ = super().propose(inputs, draft_state)
            passes = draft.passes._replace(draft_model=jnp.ones(ROWS, jnp.int32))
            return dataclasses.replace(draft, passes=passes), draft_state + 1

        def init(self, inputs):
            return jnp.zeros((), jnp.int32)

    inputs = inputs_of(2)
    for sometimes, asked in ((True, 1), (False, 0)):
        drafter = chain(Tabled(1, 2, sometimes), Counting(2, 3))
        draft, state = drafter.propose(inputs, drafter.init(inputs))
        assert state[1] == asked and (draft.passes.draft_model == asked).all()
        lengths = set(np.asarray(draft.length).tolist())
        assert lengths == ({2, 3} if sometimes else {2})


@pytest.mark.parametrize("threshold", [-0.1, 1.5])
def test_thresholds_out_of_range(threshold):
    for stop in (stop_below, stop_adaptively):
        with pytest.raises(ValueError, match="threshold"):
            stop(Last(1), threshold)


@pytest.mark.parametrize("lengths", [{}, {1: -1}])
def test_tables_out_of_range(lengths):
    with pytest.raises(ValueError, match="table"):
        by_batch(Last(1), lengths)
