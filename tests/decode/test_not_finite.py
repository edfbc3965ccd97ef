"""Logits that are of no law: nothing is written from them, in programs of one's own too.

XLA:CPU computes a maximum without the NaN among its numbers, from some size on and unless a
compiler option says otherwise. So each test runs at several sizes and without options.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import methods, vocab
from bytelax.decode import Empty, Method, Params, Sampling, Text, lossless, stopping, take_all
from bytelax.decode.sampling import has_law
from bytelax.options import EagleHead, EarlyExitHead, HeadsConfig, MedusaHead, TwoByteHead
from bytelax.testing import TableDrafter, TableTarget, distance, exact_law, table, target_law
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive, slow

K = 3
LM = models.replace(
    models.BYTE_LMS["window"],
    trunk={"layers": 3},
    heads=HeadsConfig(
        early_exit=EarlyExitHead(depths=(2,)),
        medusa=MedusaHead(count=K),
        two_byte=TwoByteHead(depths=(2,)),
        eagle=EagleHead(depths=(1, 2, 3)),
    ),
)
BLT = models.replace(models.VARIANTS["own_embedding"], block_size=K)
METHODS = {
    "plain": (models.BYTE_LMS["window"], "ar", {}),
    "draft model": (LM, "draft-model", {"draft_length": K}),
    "lookup": (LM, "lookup", {"draft_length": K}),
    "heads": (LM, "medusa", {"draft_length": K}),
    "tree of heads": (LM, "medusa", {"branches": (2, 1, 1), "nodes": 6}),
    "layer": (LM, "eagle", {"draft_length": K}),
    "tree of the layer": (LM, "eagle", {"draft_length": K, "beam": 2, "nodes": 5}),
    "exit": (LM, "early-exit", {"exit_layer": 2, "draft_length": K}),
    "several": (LM, "spectr", {"draft_length": K}),
    "past": (BLT, "blt-s", {"draft_length": K}),
    "block, kept": (BLT, "blt-d", {"block_size": K}),
    "block, verified": (BLT, "blt-dv", {"block_size": K, "unmask": "confidence"}),
}
SIZES = [slow(1, None), slow(1, 17), (24, None)]


def spoilt(params, *path, at=slice(None)):
    """Parameters with NaN in an array, or in all arrays of a part; `at` is of the last axis."""
    first, *rest = path
    if rest:
        return params | {first: spoilt(params[first], *rest, at=at)}
    return params | {first: jax.tree.map(lambda x: x.at[..., at].set(np.nan), params[first])}


@functools.cache
def built(which):
    config, name, options = METHODS[which]
    model = models.model(config)
    if name in ("draft-model", "spectr"):
        options = options | {"draft_model": model}
    return (model, *methods.build(name, model, **options))


def run(method, params, rows, *, temperature):
    """Decodes as many equal prompts, by programs without any compiler options."""
    text = Text.of([b"a text, a text"] * rows, length=32)
    sampling = Sampling.of(rows, temperature=temperature, allow_eos=False)
    begin = jax.jit(functools.partial(method.init, budget=9, sampling=sampling))
    decoding = begin(params, text)
    return jax.device_get(jax.jit(method.decode)(params, decoding))


@pytest.mark.parametrize("shape", [(1, 1), (1, 17), (24, 1), (64, 17)])
def test_logits_of_no_law_are_found(shape):
    logits = np.random.default_rng(0).normal(size=(*shape, vocab.SIZE)).astype(np.float32)
    logits[..., vocab.OFFSET + 3] = -np.inf  # an id that the target forbids
    how = Sampling.of(shape[0])
    lawful = jax.jit(has_law)
    for place in (vocab.EOS, vocab.OFFSET, vocab.SIZE - 1):
        for value in (np.nan, -np.nan, np.inf):
            bad = logits.copy()
            bad[-1, -1, place] = value
            assert np.argwhere(~lawful(bad, how)).tolist() == [[shape[0] - 1, shape[1] - 1]]
    bad = logits.copy()
    bad[..., vocab.BOS] = np.nan  # an id that is banned
    assert lawful(bad, how).all()
    assert not lawful(np.full_like(logits, -np.inf), how).any()


@pytest.mark.parametrize(("rows", "window"), SIZES)
@pytest.mark.parametrize(
    ("which", "temperature"),
    [
        ("plain", 0.0),
        slow("plain", 0.8),
        slow("draft model", 0.8),
        slow("past", 0.0),
        *(exhaustive(which, 0.8) for which in METHODS),
    ],
)
def test_nothing_is_written_from_them(which, temperature, rows, window):
    """One column of the head is NaN, so that one logit of each byte is."""
    model, method, own = built(which)
    path = ("head", "kernel") if "head" in model.params else ("decoder", "head", "kernel")
    params = Params(spoilt(model.params, *path, at=vocab.OFFSET + ord("q")), own)
    method = Method(method.target, method.drafter, method.accept, window)
    decoding = run(method, params, rows, temperature=temperature)
    assert (decoding.ended == stopping.NOT_FINITE).all()
    np.testing.assert_array_equal(decoding.text.length, decoding.prompt)


@pytest.mark.parametrize("rows", [1, 24])
@pytest.mark.parametrize(
    ("which", "accept", "temperature"),
    [
        slow("draft model", lossless, 0.8),  # of tables: below
        slow("draft model", take_all, 0.0),
        slow("draft model", take_all, 0.8),
        *(
            exhaustive(which, lossless, warmth)
            for which in ("several", "heads", "tree of heads", "layer", "tree of the layer")
            for warmth in (0.0, 0.8)
        ),
    ],
)
def test_drafts_of_no_law_are_not_kept(which, accept, temperature, rows):
    """Nor are they by the rule that keeps every draft: the target writes each byte."""
    model, method, own = built(which)
    params = Params(spoilt(model.params, "heads"), own)
    if jax.tree.leaves(own):
        params = Params(model.params, jax.tree.map(lambda x: jnp.full_like(x, np.nan), own))
    method = Method(method.target, method.drafter, accept)
    decoding = run(method, params, rows, temperature=temperature)
    assert (decoding.ended == stopping.BY_LENGTH).all()
    assert accept is lossless or not decoding.counts.accepted.any()  # a tree may guess right
    begin, end = int(decoding.prompt[0]), int(decoding.limit[0])
    assert (decoding.text.ids[:, begin:end] >= vocab.OFFSET).all()
    if temperature == 0:
        alone = Method(method.target, Empty(method.window - 1))
        plain = run(alone, Params(model.params), rows, temperature=0.0)
        np.testing.assert_array_equal(decoding.text.ids, plain.text.ids)


def test_what_is_written_before_them_is_as_likely_as_without():
    """Of three of four bytes; drafts of no law are not kept, and ids that are banned never read."""
    target, drafts = np.array(table(4, 13)), np.array(table(4, 1))
    one, nan, inf, none = range(vocab.OFFSET, vocab.OFFSET + 4)
    target[:, :, vocab.BOE] = np.nan
    target[one, nan, one], target[one, inf, one], target[one, none] = np.nan, np.inf, -np.inf
    drafts[one, one] = np.nan
    params = Params(jnp.asarray(target), jnp.asarray(drafts))
    method = Method(TableTarget(), TableDrafter(2))
    how = {
        "prompt": [vocab.BOS, one], "new_bytes": 3, "rows": 64, "temperature": 1.0,
        "allow_eos": False,
    }  # fmt: skip
    expected = target_law(method, params, **how)
    assert {(nan,), (inf,), (none,)} < expected.keys()
    assert distance(exact_law(method, params, **how), expected) < 1e-6


def test_a_greedy_row_ends_beside_one_that_goes_on():
    """Ids that are banned are never read."""
    method = Method(TableTarget(), TableDrafter(2, temperature=0))
    begin = Text(jnp.asarray([[1, 4, 4, *[0] * 13], [1, 6, 6, *[0] * 13]]), jnp.array([3, 3]))
    target, drafts = table(3, 13), table(3, 1)
    bad = np.array(target)
    following = bad[4, 4, 4:].argmax() + 4
    bad[4, following] = bad[:, :, 0] = np.nan
    run = jax.jit(lambda params: method.decode(params, method.init(params, begin, budget=8)))
    one, other = (jax.device_get(run(Params(jnp.asarray(x), drafts))) for x in (target, bad))
    assert other.ended.tolist() == [stopping.NOT_FINITE, stopping.BY_LENGTH]
    assert int(other.text.length[0]) == 4 and int(other.text.ids[0, 3]) == following
    np.testing.assert_array_equal(one.text.ids[1], other.text.ids[1])


@pytest.mark.slow
@pytest.mark.parametrize("drafter", [Empty(), TableDrafter(2, top_p=0.02)], ids=str)
def test_the_law_of_a_certificate_ends_before_them(drafter):
    """Of a vocabulary of the usual size, as the fault begins at some size."""
    logits = table(256, 13)[:1]  # the next id depends on the last one
    likeliest = int(logits[0, vocab.OFFSET, vocab.OFFSET :].argmax()) + vocab.OFFSET
    logits = logits.at[0, likeliest, -1].set(np.nan)
    method, params = Method(TableTarget(), drafter), Params(logits, table(256, 13)[:1] * 0.5)
    how = {
        "prompt": [vocab.BOS, vocab.OFFSET], "new_bytes": 3, "rows": 64, "temperature": 1.0,
        "top_k": 2, "allow_eos": False,
    }  # fmt: skip
    expected = target_law(method, params, **how)
    assert expected[(likeliest,)] > 0.1 and sum(expected.values()) == pytest.approx(1)
    assert distance(exact_law(method, params, **how), expected) < 1e-6
