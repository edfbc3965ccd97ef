"""Heads learn the laws of the trunk that they sit on."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.models import kv_cache
from bytelax.models.byte_lm import ByteLM
from bytelax.models.execution import Execution
from bytelax.options import (
    BltSHead,
    EagleHead,
    EarlyExitHead,
    HeadsConfig,
    MedusaHead,
    TwoByteHead,
)
from bytelax.systems import blt_s, eagle, trained
from bytelax.systems.blt_s import RECENT
from bytelax.training.head_objective import HeadLoss
from tests.helpers import heads_of_a_blt, self_drafting_models, tiny_runs
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive, slow

KEY = jax.random.key(0)  # of a loss that draws nothing


def ids(length=24):
    return jnp.asarray(models.random_text(2, length, eos=False) % 3 + vocab.OFFSET)


@pytest.mark.parametrize(
    ("name", "ahead"),
    [
        ("medusa_1", 1),
        slow("two_byte_3", 1),
        exhaustive("early_exit_2", 0),
        exhaustive("medusa_2", 2),
    ],
)
def test_what_each_head_is_asked_for(name, ahead):
    """A head whose law is the trunk's at the right byte has no divergence; at another it has."""
    model, text = self_drafting_models.trunk(), ids()
    objective, original = HeadLoss(model.module), trained.losses

    @jax.jit
    def divergence(params, ahead):
        """Of head `name` when its logits are what the trunk says `ahead` bytes later."""

        def perfect(*given):
            (head,) = (head for head in original(*given) if head.name == name)
            texts = given[-1]
            logits = texts.model.logits(texts.hidden[-1])
            later = jnp.roll(logits, -ahead, axis=1)[:, : head.logits.shape[1]]
            return [head._replace(logits=later)]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trained, "losses", perfect)
            return objective.loss(params, text, KEY)

    right, metrics = divergence(model.params, ahead)
    wrong, _ = divergence(model.params, ahead + 1)
    assert right < 1e-6 < 1e-3 < wrong
    assert metrics[f"overlap_{name}"][0] == pytest.approx(metrics[f"overlap_{name}"][1])


def test_what_stands_later_in_a_draft_weighs_less():
    """The first byte of a draft has nothing to learn: the loss is a share of the third's."""
    model, text = self_drafting_models.trunk(), ids()

    def two(config, execution, params, texts):
        logits = texts.model.logits(texts.hidden[-1])
        byte = jnp.arange(1, logits.shape[1] + 1)[None]
        first = trained.Drafted("first", 1, logits, byte)
        return [first, first._replace(name="third", place=3, logits=0 * logits)]

    @jax.jit
    def losses(params):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trained, "losses", two)
            alike, less = (HeadLoss(model.module, decay=decay) for decay in (None, 4.0))
            return alike.loss(params, text, KEY)[0], less.loss(params, text, KEY)[0]

    alike, less = map(float, losses(model.params))
    weight = math.exp(-2 / 4)
    assert alike > 0.1 and less == pytest.approx(2 * weight / (1 + weight) * alike, rel=1e-5)


@pytest.mark.parametrize("step", [exhaustive(0), 1, slow(2)])
def test_eagle_sees_in_training_what_it_sees_when_drafting(step):
    """Logits of whole texts are those of a cache with `step` own outputs after the text."""
    model, end = self_drafting_models.trunk(), 14

    @jax.jit
    def both(params, text):
        bound = model.module.bind({"params": params})
        heads = {"params": params["heads"]["eagle"]}
        layer = eagle.network(model.config, Execution()).bind(heads)
        return unrolled_and_cached(bound, layer, model.config, text, end=end, step=step)

    np.testing.assert_allclose(*both(model.params, ids()), atol=1e-5)


def unrolled_and_cached(bound, layer, config, text, *, end, step):
    """Logits of the byte `step` behind the end, as in training and as in drafting."""
    window = config.trunk.window
    positions = jnp.broadcast_to(jnp.arange(text.shape[1]), text.shape)
    span = kv_cache.causal_span(positions, window=window)
    hidden, _ = bound.trunk.states(bound.embed(text), span=span)
    states, ids = tuple(hidden[n] for n in config.heads.eagle.depths), jnp.roll(text, -1, axis=1)
    features, following = layer.fuse(*states), bound.embed(ids)
    unrolled = layer(states, following, step + 1)[step]
    caches = kv_cache.zeros(layer.trunk, batch=2, slots=32, dtype=jnp.float32)
    known = jax.tree.map(lambda x: x[:, : end + 1], (features, following, positions))
    logits, own, caches = layer.step(
        *known[:2], caches, span=kv_cache.causal_span(known[2], window=window)
    )
    logits, own = logits[:, -1:], own[:, -1:]
    for ahead in range(1, step + 1):
        at = positions[:, end + ahead, None]
        logits, own, caches = layer.step(
            own,
            following[:, end + ahead, None],
            caches,
            span=kv_cache.causal_span(at, window=window),
        )
    return unrolled[:, end + step, None], logits


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        (
            lambda: HeadsConfig(early_exit=EarlyExitHead(depths=(3,))),
            "heads.early_exit.depths must lie in 1..2, of 3 layers in all, got 3",
        ),
        (
            lambda: HeadsConfig(two_byte=TwoByteHead(depths=(4,))),
            "heads.two_byte.depths must lie in 1..3",
        ),
        (lambda: HeadsConfig(eagle=EagleHead(depths=(1, 2, 9))), "heads.eagle.depths must lie in"),
        (lambda: HeadsConfig(eagle=EagleHead(depths=(1,), latent=True)), "has no latents"),
        (lambda: HeadsConfig(medusa=MedusaHead(count=-1)), "count must be at least 0"),
        (lambda: HeadsConfig(medusa=MedusaHead(correction=True)), "belongs to multi-byte heads"),
        (lambda: HeadsConfig(blt_s=BltSHead(ffn_dim=8)), "heads.blt_s is for a BLT, not"),
    ],
)
def test_heads_that_cannot_be(heads, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(self_drafting_models.CONFIG, heads=heads())


def test_a_model_without_heads_has_none_to_train():
    with pytest.raises(ValueError, match="no heads to train"):
        HeadLoss(ByteLM(tiny_runs.CONFIG))


def gradients(objective, params, ids):
    """Of the heads, by path."""
    gradient = jax.jit(jax.grad(lambda params: objective.loss(params, ids, KEY)[0]))(params)
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient["heads"])
    }


@pytest.mark.slow
@pytest.mark.parametrize("step", [exhaustive(1), 2])
def test_a_head_of_latents_is_asked_for_those_of_its_patch(step):
    """Its latents, computed patch by patch, are what the decoder reads in training."""
    model, text = heads_of_a_blt.with_latents(), jnp.asarray(heads_of_a_blt.prompts()[:2, :25])
    heads = {"params": model.params["heads"]["blt_s"]}
    network = blt_s.network(model.config, Execution()).bind(heads)
    read, following = text[:, :-1], jax.jit(network.latents.__call__)

    @jax.jit
    def known(params):
        bound = model.module.bind({"params": params})
        encoded, hidden = bound.encode(read), bound.states(read)[0][-1]
        return encoded.closes, encoded.latents, bound.looked_up(read), hidden

    @jax.jit
    def logits_under(params, latents):
        bound = model.module.bind({"params": params})
        return bound.logits(bound.states_under(read, bound.encode(read), latents)[-1])

    closes, latents, looked_up, hidden = jax.device_get(known(model.params))
    for _ in range(step):
        predicted = np.zeros_like(latents)
        for row in range(len(text)):
            ends = np.flatnonzero(closes[row])
            for patch, end in enumerate(ends):
                places = np.arange(end - RECENT + 1, end + 1)
                predicted[row, patch] = following(
                    latents[row : row + 1, patch - 1 : patch] if patch else 0 * latents[:1, :1],
                    hidden[row, end - 1][None, None] if end else 0 * hidden[:1, :1],
                    looked_up[row, np.maximum(places, 0)][None, None],
                    (places > (ends[patch - 1] if patch else -1))[None, None],
                )[0, 0]
        latents = predicted
    expected = logits_under(model.params, latents)
    texts, logits = HeadLoss(model.module)._read(model.params, text, KEY)
    (head,) = (head for head in blt_s.loss(network, texts) if head.name == f"blt_s_{step}")
    np.testing.assert_allclose(head.logits, expected, atol=1e-4)
    assert head.place == step and not np.allclose(head.logits, logits, atol=1e-2)


@pytest.mark.slow
def test_a_block_table_learns():
    model = heads_of_a_blt.with_block_table()
    objective = HeadLoss(model.module, loss_of="lk", blocks=4)
    gradient = gradients(objective, model.params, ids(24))
    assert list(gradient) == [f"['blt_d']['{name}']" for name in ("left", "right", "state")]
    assert all(x.any() for x in gradient.values())
    _, metrics = jax.jit(objective.loss)(model.params, ids(24), KEY)
    assert [f"overlap_blt_d_{place}" in metrics for place in (1, 3, 4)] == [1, 1, 0]
    with pytest.raises(ValueError, match="take longer windows"):
        objective.loss(model.params, ids(4), KEY)
