"""What lies behind the end of a text was neither kept nor refused, at every length of a text."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import vocab
from bytelax.decode import Method, Params, Stops, Text, stopping
from bytelax.testing import TableDrafter, TableTarget, table
from tests.helpers import models_for_tests as models
from tests.helpers.marks import slow

K = 5
LENGTHS = range(1, 2 * (K + 1) + 2)  # of one round, of two, and of a third
TEXT = b"abcdefghijklmnopq"


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
    for result, length in zip(out.results, LENGTHS, strict=True):
        stats = result.stats.to_dict()
        assert stats["bytes"] == length
        # A round emits the draft and one byte more.
        whole, rest = divmod(length, K + 1)
        kept = [whole + (place < rest) for place in range(K)]
        drafted = stats["drafted_by_position"]
        assert drafted[:K] == kept and drafted == stats["accepted_by_position"]
        assert stats["drafted"] == stats["accepted"] == sum(kept)
        assert stats["acceptance"] == 1


TARGET, DRAFTS = np.array(table(4, 103)), np.array(table(4, 1103, scale=0.5))
for _logits in (TARGET, DRAFTS):
    _logits[..., vocab.EOS] += 2  # so that it ends many texts, and is often drafted
DRAFTS += 0.7 * TARGET
STOP = (2, 3)


def greedy(logits, ids):
    """The ids that a table writes behind these, EOS among them, until as many stand as a draft."""
    ids = list(ids)
    for _ in range(K):
        law = logits[ids[-2], ids[-1]].copy()
        law[[vocab.BOE, vocab.BOS, vocab.MASK]] = -np.inf
        ids.append(int(law.argmax()))
    return ids[-K:]


def ends(ids):
    """Whether a row whose output is `ids` has ended: by EOS or by the stop string."""
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
                    if behind - place + 1 == left or ends(branch[len(prompt) :]):
                        break
                accepted[place] += kept
                going = kept
            text.append(own)
            left -= 1
            if not left or ends(text[len(prompt) :]):
                return drafted, accepted, text
            if not going:
                break


def test_counts_are_those_of_the_definition():
    """Behind any two bytes: greedy rows end by EOS, by a stop string and at every budget."""
    pairs = itertools.product(range(vocab.OFFSET, len(TARGET)), repeat=2)
    cases = [([vocab.BOS, *pair], budget) for pair in pairs for budget in LENGTHS]
    ids = np.zeros((len(cases), 32), np.int32)
    ids[:, :3] = [prompt for prompt, _ in cases]
    method = Method(TableTarget(), TableDrafter(K, temperature=0))

    @jax.jit
    def run(params, ids, budget):
        text, stops = Text(ids, jnp.full(len(ids), 3)), Stops.of([bytes(STOP)])
        return method.decode(params, method.init(params, text, budget=budget, stops=stops))

    params = jax.device_put(Params(TARGET, DRAFTS))
    found = jax.device_get(run(params, ids, np.array([budget for _, budget in cases])))
    refused = 0
    for row, (prompt, budget) in enumerate(cases):
        drafted, accepted, text = expected(prompt, budget)
        assert found.text.ids[row, : found.text.length[row]].tolist() == text
        np.testing.assert_array_equal(found.counts.accepted_by_position[row], accepted)
        np.testing.assert_array_equal(found.counts.drafted_by_position[row], drafted)
        refused += (drafted - accepted).sum()
    assert refused
    assert {*found.ended.tolist()} == {stopping.BY_EOS, stopping.BY_STOP, stopping.BY_LENGTH}
