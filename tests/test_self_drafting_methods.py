"""The methods with which a byte transformer drafts for itself, by their names."""

import functools

import pytest

import bytelax
from tests import test_methods
from tests.helpers import heads_of_a_blt, self_drafting_models
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive, slow

PROMPTS = [bytes([0, 1, 2, 1, 0] * 3), bytes([1, 1, 0]), bytes([2, 0, 1, 1, 2, 2, 0])]


def generate(method, *, which=self_drafting_models.trunk, **options):
    return bytelax.generate(
        which(), PROMPTS, method=method, max_new_bytes=16, allow_eos=False, logprobs=True, **options
    )


# What is exhaustive here, test_golden_outputs.py or decode/drafters/test_self_drafting.py tries.
@functools.cache
def plain(window, which=self_drafting_models.trunk):
    return generate("ar", window=window, which=which)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        exhaustive("early-exit", {"verify_from": "embedding"}),
        slow("early-exit", {"exit_layer": 1, "window": 6}),
        exhaustive("composed", {"verify_from": "embedding"}),
        exhaustive("layer-skip", {}),
        slow("layer-skip", {"skip_mlp": (0,), "draft_length": 3, "window": 5}),
        exhaustive("medusa", {"window": 5}),
        ("two-byte", {"window": 5}),
        exhaustive("two-byte", {"state_layer": 2, "window": 5}),
        exhaustive("eagle", {"draft_length": 4}),
    ],
)
def test_chains_write_what_plain_decoding_does(method, options):
    out = generate(method, **options)
    test_methods.assert_same(out, plain(options.get("window", 5)))
    assert out.stats.drafted > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        exhaustive("early-exit", {"verify_from": "embedding"}),
        ("layer-skip", {}),
        exhaustive("two-byte", {}),
        exhaustive("lookup", {"draft_length": 4}),
        ("eagle", {"draft_length": 4}),
    ],
)
def test_a_trunk_with_biases_and_norms_and_no_bos(method, options):
    which = self_drafting_models.qwen
    out = generate(method, window=5, which=which, **options)
    test_methods.assert_same(out, plain(5, which))
    assert out.stats.drafted > 0


@pytest.mark.slow  # a tree: test_golden_outputs.py
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("early-exit", {}),
        exhaustive("composed", {}),
        exhaustive("medusa", {"branches": (2, 2), "nodes": 5}),
        ("medusa", {"branches": (2, 1), "window": 9}),
        exhaustive("eagle", {"draft_length": 3, "beam": 2, "nodes": 5}),
        exhaustive("spectr", {"draft_length": 2}),
    ],
)
def test_trees_and_states_handed_over_write_the_same_bytes(method, options):
    if method == "spectr":
        options = options | {"draft_model": self_drafting_models.trunk()}
    out = generate(method, **options)
    assert out.lossless and out.bytes == plain(5).bytes
    assert 0 < out.stats.accepted <= out.stats.drafted
    assert out.stats.bytes == sum(map(len, out.bytes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        exhaustive("eagle", {"draft_length": 3, "beam": 2, "nodes": 1}),
        ("eagle", {"draft_length": 6, "beam": 2, "nodes": 3}),
        exhaustive("medusa", {"branches": (2, 2, 2), "nodes": 2}),
    ],
)
def test_trees_of_fewer_nodes_than_levels(method, options):
    assert generate(method, **options).bytes == plain(5).bytes


@pytest.mark.slow
@pytest.mark.parametrize("method", ["early-exit", *map(exhaustive, ("medusa", "eagle", "spectr"))])
def test_sampling_depends_on_the_seed_alone(method):
    options = {"temperature": 1.0}
    if method == "spectr":
        options |= {"draft_model": self_drafting_models.trunk(), "draft_length": 2}
    first = generate(method, seeds=[3, 4, 5], **options)
    again = generate(method, seeds=[3, 9, 5], **options)
    assert first.bytes[0] == again.bytes[0] and first.bytes[2] == again.bytes[2]


@pytest.mark.parametrize(
    ("which", "method", "options", "message"),
    [
        (self_drafting_models.trunk, "early-exit", {"exit_layer": 3}, "one of the first 2, got 3"),
        (
            self_drafting_models.trunk,
            "early-exit",
            {"exit_layer": 1, "exit_head": True},
            "no exit head",
        ),
        (self_drafting_models.trunk, "composed", {"draft_length": 3}, "an even length, got 3"),
        (self_drafting_models.trunk, "composed", {"exit_layer": 1}, "no two-byte head"),
        (self_drafting_models.trunk, "layer-skip", {"skip_mlp": (3,)}, "cannot skip"),
        (self_drafting_models.trunk, "medusa", {"draft_length": 4}, "3 multi-byte heads"),
        (
            self_drafting_models.trunk,
            "medusa",
            {"branches": (2,), "draft_length": 1},
            "from branches",
        ),
        (
            self_drafting_models.trunk,
            "two-byte",
            {"state_layer": 1},
            "no two-byte head behind layer 1",
        ),
        (test_methods.byte_lm, "medusa", {}, "no multi-byte heads"),
        (test_methods.byte_lm, "two-byte", {}, "no two-byte head"),
        (test_methods.byte_lm, "eagle", {}, "no trained layers of eagle"),
        (test_methods.byte_lm, "spectr", {}, "needs draft_model"),
        (test_methods.model, "early-exit", {}, "needs a byte transformer"),
        (test_methods.model, "eagle", {}, "no trained layers of eagle"),
        (test_methods.model, "medusa", {}, "no multi-byte heads"),
        (test_methods.byte_lm, "dflash", {}, "no trained layers of dflash"),
        slow(heads_of_a_blt.blt, "dflash", {"draft_length": 4}, "blocks of up to 3 bytes, got 4"),
        slow(heads_of_a_blt.blt, "dflash", {"draft_length": -1}, "up to 3 bytes, got -1"),
        slow(heads_of_a_blt.blt, "medusa", {"branches": (2,)}, "needs a byte transformer"),
        slow(heads_of_a_blt.blt, "eagle", {"beam": 2}, "needs a byte transformer"),
    ],
)
def test_refusals_say_what_is_wrong(which, method, options, message):
    with pytest.raises(ValueError, match=message):
        generate(method, which=which, **options)


@pytest.mark.slow
def test_models_without_heads_still_skip_and_exit():
    out = generate("early-exit", which=test_methods.byte_lm)
    expected = generate("ar", which=test_methods.byte_lm, window=5)
    assert out.bytes == expected.bytes
    assert models.BYTE_LMS["window"].heads is None
