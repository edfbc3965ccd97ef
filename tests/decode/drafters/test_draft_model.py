"""A draft model keeps step with the text, and changes nothing but the speed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax.decode import Method, Params, Sampling, Text, certain
from bytelax.systems import DraftModelDrafter
from tests.helpers import decoding as loops
from tests.helpers import models_for_tests as models

WIDTH = 4


def beside_another(config):
    """A method whose draft model is often right, its parameters, and its sampling of two rows."""
    model = models.model(config)
    method = Method(model.target(), DraftModelDrafter(model.target(), WIDTH))
    other = jax.tree.map(lambda x: x * 0.9 if x.ndim > 1 else x, model.params)
    rows = {
        "seeds": jnp.arange(len(loops.LENGTHS), dtype=jnp.uint32),
        "sampling": Sampling.of(len(loops.LENGTHS), temperature=0.7, allow_eos=False),
    }
    return method, Params(model.params, other), rows


def assert_same_draft(found, expected):
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("config", [models.BYTE_LMS["documents"], models.VARIANTS["cut"]])
def test_a_draft_is_that_of_a_fresh_start(config):
    """Wherever the text leaves the draft before it, and whoever wrote the text."""
    method, params, rows = beside_another(config)
    draft, verify, fresh = map(
        jax.jit,
        (method.draft, method.verify, lambda text: method.init(params, text, budget=30, **rows)),
    )
    decoding = fresh(Text(jnp.asarray(loops.prompts()), jnp.asarray(loops.LENGTHS)))
    kept = []
    for turn in range(12):
        before = decoding.text.length
        found, state = draft(params, decoding)
        anew = dataclasses.replace(decoding, draft_state=fresh(decoding.text).draft_state)
        expected, _ = draft(params, anew)
        assert_same_draft(found, expected)
        if turn % 4 > 1:  # another drafter's turn, so that `propose` falls two drafts back
            found, state = certain(found.ids), decoding.draft_state
        decoding = verify(params, decoding, dataclasses.replace(found, state=None), state)
        kept += [*np.asarray(decoding.text.length - before)]
    assert {1, WIDTH + 1} < {*kept}


@pytest.mark.slow
def test_a_row_goes_on_where_it_had_ended():
    """Its draft model has read all of the text by then, as it stood still in further rounds."""
    method, params, rows = beside_another(models.BYTE_LMS["documents"])
    batch = len(loops.LENGTHS)

    @jax.jit
    def fresh(text, budget):
        return method.init(params, text, budget=budget, **rows)

    @jax.jit
    def went_on(decoding):
        nothing = Text(jnp.zeros((batch, 1), jnp.int32), jnp.zeros(batch, jnp.int32))
        decoding = method.append(params, method.decode(params, decoding), nothing, budget=9)
        return method.round(params, decoding)

    budgets = jnp.full(batch, 2).at[-1].set(15)
    decoding = fresh(Text(jnp.asarray(loops.prompts()), jnp.asarray(loops.LENGTHS)), budgets)
    decoding = went_on(decoding)
    assert decoding.counts.drafted.tolist() == [0] * (batch - 1) + [WIDTH]
    anew = dataclasses.replace(decoding, draft_state=fresh(decoding.text, budgets).draft_state)
    found, expected = (jax.jit(method.draft)(params, each)[0] for each in (decoding, anew))
    assert_same_draft(found, expected)


# Through `generate`


@pytest.mark.slow
def test_refilled_rows_and_streams():
    model = models.chain("aé日x😀".encode())
    request = {
        "method": "draft-model",
        "draft_model": model,
        "draft_length": 3,
        "max_new_bytes": 11,
    }
    prompts = ["a", "日", "x", "aé", "😀"]
    plain = bytelax.generate(model, prompts, max_new_bytes=11)
    many = sorted(bytelax.generate_many(model, prompts, batch=2, **request), key=lambda r: r.index)
    assert [result.bytes for result in many] == plain.bytes
    assert [result.stats.rounds for result in many] == [3] * 5
    assert "".join(bytelax.stream(model, "a", every=1, **request)) == plain.text[0]


@pytest.mark.slow
def test_statistics_count_the_draft_model():
    model, small = models.chain(b"abcdef"), models.chain(b"abcdefgh")
    request = {"method": "draft-model", "max_new_bytes": 12, "draft_length": 3}
    row = bytelax.generate(model, [b"a"], draft_model=small, **request).results[0].stats.to_dict()
    plain = bytelax.generate(model, [b"a"], max_new_bytes=12).results[0].stats.to_dict()
    assert row["draft_model_passes"] == 3 * row["rounds"]
    assert row["decoder_passes"] == row["rounds"] < 12

    def weights(model):
        leaves = jax.tree_util.tree_leaves_with_path(model.params)
        return sum(x.size for path, x in leaves if "embedding" not in str(path))

    read = row["rounds"] * (weights(model) + 3 * weights(small))
    assert row["bandwidth_gb"] == pytest.approx(2 * read / 1e9)
    assert plain["draft_model_passes"] == 0
