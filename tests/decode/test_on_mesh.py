"""Decoding on eight simulated devices, split in every way, is that of one device."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, PartitionSpec

import bytelax
from bytelax import architectures, constraints
from bytelax.decode import Text
from bytelax.options import (
    DFlashHead,
    EagleHead,
    EarlyExitHead,
    HeadsConfig,
    MedusaHead,
    TwoByteHead,
)
from bytelax.pods import sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.running import programs, requests
from bytelax.running.engine import Engine
from bytelax.targets.blt import BLTTarget
from bytelax.targets.byte_lm import ByteLMTarget
from experiments.studies import compile_pods as pods
from tests.helpers import models_for_tests

BLT = models_for_tests.replace(
    models_for_tests.PLAIN, decoder_input="embedding", block_size=4, decoder={"layers": 2}
)
BYTE_LM = models_for_tests.replace(models_for_tests.BYTE_LM, trunk={"kv_heads": 2, "layers": 3})
HEADS = HeadsConfig(
    early_exit=EarlyExitHead(depths=(1,)),
    medusa=MedusaHead(count=2, correction=True),
    two_byte=TwoByteHead(depths=(1, 3)),
    eagle=EagleHead(depths=(1, 2, 3)),
)
SMALL = models_for_tests.replace(BYTE_LM, trunk={"layers": 1, "dim": 16})
WITH_HEADS = models_for_tests.replace(BYTE_LM, heads=HEADS)
BLT_WITH_HEADS = models_for_tests.replace(
    models_for_tests.PLAIN,
    heads=HeadsConfig(
        eagle=EagleHead(depths=(1,), latent=True, heads=4),
        dflash=DFlashHead(depths=(1,), block_size=3, latent=True, heads=4),
    ),
)
PROMPTS = [b"one", b"another one", b"x" * 40, b"q", b"hello there"]
MESHES = {
    "rows": MeshConfig(data=2, fsdp=2),
    "heads": MeshConfig(tensor=2),
    "both": MeshConfig(data=2, fsdp=2, tensor=2),
}
METHODS = {
    "ar": (BLT, {}),
    "ar of a byte model": (BYTE_LM, {}),
    "blt-s": (models_for_tests.PLAIN, {"draft_length": 4}),
    "blt-dv": (BLT, {"block_size": 4, "unmask": "entropy"}),
    "draft-model": (BLT, {"draft_length": 3}),
    "layer-skip": (BYTE_LM, {}),
    "medusa": (WITH_HEADS, {"branches": (2, 2)}),
    "eagle": (WITH_HEADS, {"beam": 2, "draft_length": 2}),
    "dflash": (BLT_WITH_HEADS, {}),
}
# A drafter of each kind of model, and each mesh; the others are exhaustive.
ON_MESHES = [
    ("layer-skip", "heads"), ("blt-s", "heads"), ("blt-dv", "rows"), ("eagle", "both"),
    ("dflash", "both"), ("draft-model", "both"),
]  # fmt: skip
MARKS = {(name, "both"): pytest.mark.exhaustive for name in METHODS}
MARKS |= dict.fromkeys(ON_MESHES, pytest.mark.slow) | {("ar of a byte model", "heads"): ()}


@functools.cache
def on_one(name):
    config, options = METHODS[name]
    method = name.split()[0]
    if method in ("draft-model", "spectr"):
        options = options | {"draft_model": models_for_tests.model(SMALL, seed=1)}
    model = models_for_tests.model(config)
    keywords = {"method": method, "max_new_bytes": 12, "logprobs": True} | options
    # A stop string that never comes, and as long as the one below: the program is the same.
    first = bytelax.generate(model, PROMPTS, stop=[b"\xfe\xff"], **keywords)
    keywords["stop"] = [first.bytes[1][4:6]]  # rows end at different times
    return model, keywords, bytelax.generate(model, PROMPTS, **keywords)


def smallest_margin(model, output):
    """Between the two likeliest ids, over all bytes that were emitted."""
    margins = []
    for prompt, result in zip(PROMPTS, output.results, strict=True):
        text = bytelax.vocab.encode(prompt + result.bytes)
        ids = np.array([text + [bytelax.vocab.OFFSET] * (64 - len(text))])  # as long as any
        logits = np.asarray(model.logits(ids))[0, len(prompt) : len(text) - 1, 4:]
        logits = np.sort(logits)
        margins.append((logits[:, -1] - logits[:, -2]).min(initial=1.0))
    return min(margins)


@pytest.mark.parametrize(
    ("name", "mesh"),
    [pytest.param(*case, marks=mark) for case, mark in MARKS.items()],
)
def test_a_mesh_writes_what_one_device_does(name, mesh):
    model, keywords, one = on_one(name)
    on = model.on(sharding.make_mesh(MESHES[mesh]))
    output = bytelax.generate(on, PROMPTS, **keywords)
    assert smallest_margin(model, one) > 1e-4
    assert output.bytes == one.bytes
    assert [r.stop for r in output.results] == [r.stop for r in one.results]
    assert {r.stop for r in one.results} == {"stop", "length"}
    for many, single in zip(output.results, one.results, strict=True):
        np.testing.assert_allclose(many.log_probs, single.log_probs, atol=1e-5)
        assert many.stats.rounds == single.stats.rounds


def program(model, keywords):
    """What decodes, as compiled."""
    request = Engine.of(model, **keywords)
    asked = requests.all_of(PROMPTS, 0)
    empty = [None] * (request.rows(len(asked)) - len(asked))
    decoding = request.start([*asked, *empty], capacity=max(map(request.capacity, asked)))
    how = {"method": request.method, "placement": request.placement, "platform": "cpu"}
    how |= {"rounds": None, "ended": None}
    return programs.advance().lower(request.params, decoding, **how).compile().as_text()


@pytest.mark.slow
def test_devices_with_different_rows_do_not_speak():
    model, keywords, _ = on_one("blt-dv")
    found = program(model.on(sharding.make_mesh(MESHES["rows"])), keywords)
    assert "while" in found
    assert pods.collectives(found) == {}


@pytest.mark.slow
def test_devices_with_the_same_rows_say_what_they_must():
    """One layer of each stack: a sum behind each attention and SwiGLU, and the hash embeddings."""
    model, keywords, _ = on_one("blt-s")
    found = program(model.on(sharding.make_mesh(MESHES["both"])), keywords)
    assert pods.collectives(found) == {
        "draft": {"all-gather": 1, "all-reduce": 2 + 3},  # encoder, decoder
        # And pooling, global; what is drafted and what is emitted.
        "rest": {"all-gather": 1, "all-reduce": 2 + 1 + 2 + 3 + 2},
    }


def one_draws_others(monkeypatch, target):
    """Lets one of the devices that share rows draw other bytes."""
    extend = target.extend

    def strange(self, *args, **options):
        logits, trial = extend(self, *args, **options)
        if self.module.execution.tensor_axis is None:
            return logits, trial
        second = jax.lax.axis_index("tensor") == 1
        return jnp.where(second, jnp.roll(logits, 1, axis=-1), logits), trial

    monkeypatch.setattr(target, "extend", strange)


@pytest.mark.slow
def test_devices_that_share_rows_do_as_the_first_does(monkeypatch):
    """Sums that differ between devices change nothing."""
    model, keywords, one = on_one("ar")
    one_draws_others(monkeypatch, BLTTarget)
    on = model.on(sharding.make_mesh(MeshConfig(tensor=2)))
    assert bytelax.generate(on, PROMPTS, **keywords).bytes == one.bytes


@pytest.mark.slow
def test_a_draft_model_drafts_what_the_first_device_draws(monkeypatch):
    """Else devices would go back to different bytes, and wait for each other forever."""
    model = models_for_tests.model(BYTE_LM)
    keywords = {"method": "draft-model", "draft_model": model, "draft_length": 3}
    keywords["max_new_bytes"] = 12
    one = bytelax.generate(model, PROMPTS, **keywords)
    one_draws_others(monkeypatch, ByteLMTarget)
    output = bytelax.generate(
        model.on(sharding.make_mesh(MeshConfig(tensor=2))), PROMPTS, **keywords
    )
    assert output.bytes == one.bytes
    assert {result.stats.rounds for result in output.results} == {3}  # all drafts are right


@functools.cache
def eight():
    return models_for_tests.model(models_for_tests.PLAIN).on(
        sharding.make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    )


@pytest.mark.slow
def test_streams_and_refilled_batches():
    model = models_for_tests.model(models_for_tests.PLAIN)
    keywords = {"max_new_bytes": 9, "method": "lookup", "draft_length": 2}
    assert "".join(bytelax.stream(eight(), PROMPTS[0], every=2, **keywords)) == "".join(
        bytelax.stream(model, PROMPTS[0], every=2, **keywords)
    )
    prompts = [bytes([65 + i]) * (1 + i) for i in range(11)]
    keywords["stop"] = [b"\x80"]

    def everything(model):
        results = bytelax.generate_many(model, prompts, batch=4, **keywords)
        return {result.index: result.bytes for result in results}

    assert everything(eight()) == everything(model)


@pytest.mark.slow
def test_turns_samples_and_constraints():
    model = models_for_tests.model(models_for_tests.PLAIN)
    how = {"max_new_bytes": 9, "method": "blt-s", "draft_length": 2}
    how |= {"constraint": constraints.utf8(), "temperature": 0.7, "seeds": 5}

    def everything(model):
        texts = [result.bytes for result in bytelax.turns(model, ["one", " and", "two"], **how)]
        return texts, bytelax.generate(model, PROMPTS, samples=2, **how).bytes

    assert everything(eight()) == everything(model)


def test_weights_and_caches_lie_where_the_rules_say():
    model = eight()
    held = jax.tree.map(lambda x: x.sharding.spec, model.params)
    assert held["global_transformer"]["trunk"]["layers_0"]["mlp"]["down"]["kernel"] == (
        PartitionSpec("tensor", None)
    )
    assert held["encoder"]["hash_embed"]["embedding"] == PartitionSpec(None, "tensor")
    patcher = jax.tree.leaves(held["patcher"])
    assert not any(any(spec) for spec in patcher)
    rows = ("data", "fsdp")
    target = architectures.target_of(model.module)
    text = Text(jnp.ones((8, 4), jnp.int32), jnp.full(8, 4))
    state = jax.eval_shape(target.prefill, model.params, text)
    specs = sharding.state_specs({"state": state})["state"]
    assert specs.decoder[0].keys == PartitionSpec(rows, "tensor", None, None)
    assert specs.patcher[0].values == PartitionSpec(rows, None, None, None)
    assert specs.contexts[0].keys == PartitionSpec(rows, None, None, "tensor", None)
    assert specs.length == PartitionSpec(rows)


def test_what_does_not_divide_is_told():
    model = models_for_tests.model(models_for_tests.BASE)  # one key head
    with pytest.raises(ValueError, match=r"key_value/kernel of .*does not divide evenly"):
        model.on(sharding.make_mesh(MeshConfig(tensor=2)))
    with pytest.raises(ValueError, match="a batch of 6 rows does not divide among 4 parts"):
        bytelax.generate_many(eight(), PROMPTS, batch=6)
    with pytest.raises(ValueError, match=r"hash_embed/embedding of shape .* does not divide"):
        sharding.shardings(
            models_for_tests.model(models_for_tests.PLAIN).params,
            models_for_tests.model(models_for_tests.PLAIN).module.logical_axes(),
            AbstractMesh((1, 1, 3), ("data", "fsdp", "tensor")),
            sharding.DECODE_RULES | {"kv_head": None, "head": None, "hidden": None},
        )
