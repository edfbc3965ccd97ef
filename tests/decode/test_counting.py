"""What lies behind the end of a text was neither kept nor refused, at every length of a text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import vocab
from bytelax.decode import Method, Params, Sampling, Stops, Text
from bytelax.testing import TableDrafter, TableTarget, table
from tests.helpers import models_for_tests as models
from tests.helpers.marks import slow

K = 5
LENGTHS = range(1, 2 * (K + 1) + 2)  # of one round, of two, and of a third
TEXT = b"abcdefghijklmnopq"


def assert_all_kept(out, lengths):
    for result, length in zip(out.results, lengths, strict=True):
        stats = result.stats.to_dict()
        assert stats["bytes"] == length
        # A round emits the draft and one byte more.
        whole, rest = divmod(length, K + 1)
        kept = [whole + (place < rest) for place in range(K)]
        drafted = stats["drafted_by_position"]
        assert drafted[:K] == kept and drafted == stats["accepted_by_position"]
        assert stats["drafted"] == stats["accepted"] == sum(kept)
        assert stats["acceptance"] == 1


@pytest.mark.parametrize(
    ("method", "temperature"),
    [("draft-model", 0.0), slow("draft-model", 0.8), slow("spectr", 0.8)],
)
def test_of_a_model_that_drafts_for_itself_all_is_kept_at_every_budget(method, temperature):
    model = models.model(models.BYTE_LM) if temperature else models.chain(TEXT)
    out = bytelax.generate(
        model, [b"q"] * len(LENGTHS), max_new_bytes=list(LENGTHS), method=method,
        draft_model=model, draft_length=K, temperature=temperature, allow_eos=not temperature,
        stop=[b"\xff"],
    )  # fmt: skip
    assert_all_kept(out, LENGTHS)


@pytest.mark.parametrize("by", ["eos", "stop"])
def test_so_it_is_wherever_the_model_ends_the_text(by):
    model = models.chain(TEXT, loop=by == "stop")
    prompts = [TEXT[-1 - length :][:1] for length in LENGTHS]
    out = bytelax.generate(
        model, prompts, max_new_bytes=40, method="draft-model", draft_model=model, draft_length=K,
        stop=[TEXT[-1:] if by == "stop" else b"\xff"],
    )  # fmt: skip
    assert {result.stop for result in out.results} == {by}
    # An EOS is emitted behind the last byte.
    assert_all_kept(out, [length + (by == "eos") for length in LENGTHS])


TARGET, DRAFTS = table(4, 13), table(4, 1, scale=0.5) + 0.7 * table(4, 13)
STOP = (2, 3)


def greedy(logits, ids):
    """The ids that a table writes behind these, EOS among them, until as many stand as a draft."""
    ids = list(ids)
    for _ in range(K):
        law = np.asarray(logits[ids[-2], ids[-1]]).copy()
        law[[vocab.BOE, vocab.BOS, vocab.MASK]] = -np.inf
        ids.append(int(law.argmax()))
    return ids[-K:]


def ends(ids):
    return ids[-1] == vocab.EOS or tuple(x - vocab.OFFSET for x in ids[-2:]) == STOP


def expected(prompt, budget):
    """Counts of each position, from the two tables and the definition."""
    drafted, accepted = np.zeros(K, int), np.zeros(K, int)
    text, left = list(prompt), budget
    while True:
        going = True  # whether all places before this one were kept
        draft = greedy(DRAFTS, text)
        for place in range(K + 1):
            own = greedy(TARGET, text)[0]
            if place < K:
                kept = draft[place] == own
                # Whatever is decided, the draft's text goes on at the next place, or it does not.
                for behind in range(place, K if not kept else place + 1):
                    drafted[behind] += 1
                    branch = text + draft[place : behind + 1]
                    if behind - place + 1 == left or ends(branch[len(prompt) - 2 :]):
                        break
                accepted[place] += kept
                going = kept
            text.append(own)
            left -= 1
            if not left or ends([-1, -1, *text[len(prompt) :]]):
                return drafted, accepted, text
            if not going:
                break


@jax.jit
def run(params, ids, length, budget):
    """Greedy rows."""
    rows, method = len(ids), Method(TableTarget(), TableDrafter(K, temperature=0))
    how = {"sampling": Sampling.of(rows), "stops": Stops.of([bytes(STOP)])}
    text = Text(ids, jnp.full(rows, length))
    return method.decode(params, method.init(params, text, budget=budget, **how))


@pytest.mark.parametrize("first", range(vocab.OFFSET, len(TARGET)))
def test_counts_are_those_of_the_definition(first):
    prompt = [vocab.BOS, vocab.OFFSET, first]
    ids = np.zeros((len(LENGTHS), 32), np.int32)
    ids[:, : len(prompt)] = prompt
    found = jax.device_get(run(Params(TARGET, DRAFTS), ids, len(prompt), np.array(LENGTHS)))
    refused = 0
    for row, budget in enumerate(LENGTHS):
        drafted, accepted, text = expected(prompt, budget)
        assert found.text.ids[row, : found.text.length[row]].tolist() == text
        np.testing.assert_array_equal(found.counts.accepted_by_position[row], accepted)
        np.testing.assert_array_equal(found.counts.drafted_by_position[row], drafted)
        refused += (drafted - accepted).sum()
    assert refused
