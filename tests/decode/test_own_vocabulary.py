"""Targets whose ids are not those of bytes: seven of them, or a thousand."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import constraints
from bytelax.decode import (
    Empty,
    Method,
    Params,
    Rewindable,
    Sampling,
    Stops,
    Text,
    process_logits,
    stopping,
)
from bytelax.systems import DraftModelDrafter, LookupDrafter
from bytelax.testing import assert_lossless
from bytelax.testing.tables import TableDrafter, TableTarget
from bytelax.vocab import ALL_BYTES, Vocabulary
from tests.helpers import models_for_tests as models


@dataclasses.dataclass(frozen=True)
class Table(TableTarget, Rewindable):
    """A table over seven ids, of which some may be emitted."""

    vocabulary: Vocabulary
    window: int | None = None


@dataclasses.dataclass(frozen=True)
class OwnHeads(TableDrafter):
    """Drafts of a head of its own, which knows the same ids."""

    vocabulary: Vocabulary = ALL_BYTES

    def drawn(self, logits):
        law = Sampling.of(len(logits), temperature=1.0)
        return process_logits(logits, dataclasses.replace(law, vocabulary=self.vocabulary))


SEVEN = Vocabulary(0, 7)
WITH_EOS = Vocabulary(0, 7, eos=0)
OUTSIDE = Vocabulary(1, 4, eos=6)


def table(seed, size=7):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(size,) * 3), jnp.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drafter", "known"),
    [("lookup", WITH_EOS), ("lookup", OUTSIDE), ("draft model", WITH_EOS), ("heads", OUTSIDE)],
    ids=["lookup-eos", "lookup-outside", "draft model-eos", "heads-outside"],
)
def test_lossless(drafter, known):
    drafter, params = {
        "lookup": (LookupDrafter(2, shortest=1), ()),
        "draft model": (DraftModelDrafter(Table(known), 2), table(1)),
        "heads": (OwnHeads(2, vocabulary=known), table(2)),
    }[drafter]
    method = Method(Table(known), drafter)
    prompt = (1, 3, 2, 3) if known is OUTSIDE else (5, 3, 2, 3)
    assert_lossless(
        method, Params(table(0), params), prompt=prompt, new_bytes=3, top_k=3, rows=32, reach=12
    )


@functools.partial(jax.jit, static_argnames="method")
def run(params, text, sampling, stops, *, method):
    begin = method.init(params, text, budget=30, sampling=sampling, stops=stops)
    return method.decode(params, begin)


def decoded(known, *, stops=((7,), (7, 7)), **law):
    """Rows that end by no stop string unless others are given."""
    text, law = Text.of([[1, 2], [3]] * 8, length=40), Sampling.of(16, temperature=1.0, **law)
    found = run(Params(table(0)), text, law, Stops.of(stops), method=Method(Table(known), Empty()))
    return jax.device_get(found)


def test_a_constraint_is_about_bytes():
    method, text = Method(Table(SEVEN)), Text.of([[1, 2]], length=8)
    with pytest.raises(ValueError, match="a constraint is about bytes"):
        method.init(Params(table(0), constraint=constraints.utf8()), text, budget=2)


def test_which_ids_are_emitted_and_what_ends_a_row():
    free = decoded(SEVEN)
    assert set(np.unique(free.text.ids[:, 2:30])) == set(range(7))
    assert (free.ended == stopping.BY_LENGTH).all()
    inside = decoded(OUTSIDE)
    assert set(np.unique(inside.text.ids[:, 2:20])) <= {0, 1, 2, 3, 6}  # 0 is the padding
    ended = inside.ended == stopping.BY_EOS
    last = inside.text.ids[np.arange(16), inside.text.length - 1]
    assert ended.any() and (last[ended] == 6).all()
    banned = decoded(WITH_EOS, allow_eos=False)
    assert not (banned.text.ids[:, 2:30] == 0).any()


def test_stop_strings_are_ids():
    found = decoded(SEVEN, stops=((5,), (3, 4)))
    new = found.text.ids[0, 2 : found.text.length[0]].tolist()
    assert found.ended[0] == stopping.BY_STOP and (new[-1] == 5 or new[-2:] == [3, 4])


def test_top_k_may_exceed_the_number_of_bytes():
    law = Sampling.of(1, temperature=1.0, top_k=500)
    law = dataclasses.replace(law, vocabulary=Vocabulary(0, 1000))
    found = jax.jit(process_logits)(np.zeros((1, 1, 1000), np.float32), law)
    assert np.isfinite(found).sum() == 500


def test_a_byte_transformer_without_an_eos_never_ends_a_text():
    model = models.model(models.replace(models.BYTE_LM, eos=False))
    assert model.target().vocabulary == Vocabulary(ALL_BYTES.first, ALL_BYTES.stop)
    init = functools.partial(Method(model.target(), Empty()).init, budget=1)
    start = jax.eval_shape(init, Params(model.params), Text.of([b"a"], length=8))
    law = dataclasses.replace(Sampling.of(1), vocabulary=start.sampling.vocabulary)
    logits = np.where(np.arange(260) == 2, 9, np.zeros((1, 1, 260), np.float32))
    assert np.argmax(jax.jit(process_logits)(logits, law)) != 2
