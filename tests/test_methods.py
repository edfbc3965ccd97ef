"""Methods by their names: in windows of any width, and with options or rules of one's own."""

import dataclasses
import functools
import pathlib
import types
import typing

import numpy as np
import pytest

import bytelax
from bytelax import vocab
from bytelax.decode import unmasking
from bytelax.models.configs import ModelConfig
from bytelax.options import METHODS, HeadsConfig, TargetError, TwoByteHead
from bytelax.systems import BlockInOrderDrafter, BltSDrafter
from bytelax.testing import TableTarget
from experiments.methods_page import markdown
from tests.helpers import models_for_tests as models
from tests.helpers import self_drafting_models
from tests.helpers.heads_of_a_blt import with_block_table, with_latents
from tests.helpers.marks import slow

PROMPTS = [b"Ragged prompts: ", b"and ", "naïve 日本".encode()]
DIGITS = [bytes([0, 1, 2, 1, 0] * 3), bytes([1, 1, 0]), bytes([2, 0, 1, 1, 2, 2, 0])]
OWN = models.replace(models.VARIANTS["own_embedding"], block_size=6)


@functools.cache
def model():
    return models.model(OWN)


@functools.cache
def byte_lm():
    return models.model(models.BYTE_LMS["window"])


@functools.cache
def plain(which, window, new=16):
    return generate("ar", which=which, window=window, new=new)


def generate(method, *, which=model, new=16, **options):
    small = which()
    return bytelax.generate(
        small, PROMPTS if small.config.vocab_size == vocab.SIZE else DIGITS, method=method,
        max_new_bytes=new, allow_eos=False, logprobs=True, **options,
    )  # fmt: skip


def assert_same(out, other):
    """Bitwise, what the model thinks of the bytes included."""
    assert out.lossless and out.bytes == other.bytes
    for one, two in zip(out.results, other.results, strict=True):
        np.testing.assert_array_equal(one.log_probs, two.log_probs)


@pytest.mark.parametrize(
    ("which", "method", "options"),
    [
        slow(self_drafting_models.trunk, "early-exit", {"exit_layer": 1, "window": 6}),
        slow(byte_lm, "lookup", {"draft_length": 5, "window": 9}),
        slow(model, "blt-dv", {"block_size": 4, "unmask": "entropy", "gamma": 2.0, "window": 9}),
    ],
)
def test_windows_are_as_wide_as_is_asked_for(which, method, options):
    """By name, on models whose two likeliest bytes are close: what plain decoding writes."""
    new = 64 if method == "lookup" else 16  # until a text repeats itself
    out = generate(method, which=which, new=new, **options)
    assert_same(out, plain(which, options["window"], new))
    assert out.stats.drafted > 0 and len(out.stats.drafted_by_position) == options["window"] - 1


@pytest.mark.slow
@pytest.mark.parametrize("method", ["early-exit", "composed"])
def test_exits_in_bfloat16_are_plain_decoding_bit_for_bit(method):
    """By default they handed their states over, and wrote other bytes in a quarter of all texts."""
    heads = HeadsConfig(two_byte=TwoByteHead(depths=(1,)))
    small = models.model(models.replace(models.BYTE_LM, heads=heads), "bfloat16")
    out = generate(method, which=lambda: small, new=60, exit_layer=1)
    assert_same(out, generate("ar", which=lambda: small, new=60, window=5))
    assert out.stats.accepted > 0
    with pytest.raises(ValueError, match="verify_from 'exit' needs float32 weights"):
        generate(method, which=lambda: small, verify_from="exit")


@pytest.mark.slow
def test_blocks_are_kept_whole_and_said_to_be_so():
    out = generate("blt-d", block_size=4, unmask="one-step")
    assert not out.lossless
    assert out.stats.accepted == out.stats.bytes == 16 * len(PROMPTS)
    # A pass of its own for the first block; the others start in the pass that ends the one before.
    np.testing.assert_array_equal([r.stats.decoder_passes for r in out.results], 4 + 1)
    np.testing.assert_array_equal([r.stats.encoder_passes for r in out.results], 4)
    wide = generate("blt-d", block_size=4, unmask="one-step", window=9)
    assert wide.bytes == out.bytes  # a block more is only padding


@pytest.mark.slow
def test_a_method_with_its_options_is_as_good_as_its_name():
    how = bytelax.options.Lookup(draft_length=4)
    named = generate("lookup", which=byte_lm, draft_length=4)
    assert_same(generate(how, which=byte_lm), named)
    assert_same(generate(how.build(byte_lm()), which=byte_lm), named)
    with pytest.raises(ValueError, match="draft_length: only methods given by name take options"):
        generate(how, which=byte_lm, draft_length=3)
    small = bytelax.options.DraftModel(draft_model=byte_lm(), draft_length=2)
    assert generate(small, which=byte_lm).stats.accepted > 0


@pytest.mark.parametrize("latent", ["reuse", "refresh", "predicted"])
def test_blt_s_drafts_on_the_latent_that_is_asked_for(latent):
    method = METHODS["blt-s"](draft_length=4, latent=latent).build(with_latents())
    assert method.drafter == BltSDrafter(4, latent)


def test_blt_dv_drafts_with_the_block_table_where_there_is_one():
    in_order, other = (
        METHODS["blt-dv"](block_size=3, **table).build(with_block_table()).drafter
        for table in ({}, {"table": False})
    )
    assert in_order == BlockInOrderDrafter(3) != other


def test_names_of_unmasking_rules_are_those_of_the_table():
    assert set(typing.get_args(bytelax.options.UnmaskName)) == set(unmasking.RULES)


def test_a_method_of_ones_own_has_a_name():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Twice(bytelax.options.Options):
        """Drafts the last byte again."""

        name = "twice"
        draft_length: int = 2
        """Number of bytes drafted in each round."""

        def build(self, model):
            drafter = bytelax.systems.LookupDrafter(self.draft_length, shortest=1)
            return bytelax.decode.Method(model.target(), drafter)

    try:
        assert_same(generate("twice", which=byte_lm), plain(byte_lm, 3))
    finally:
        del bytelax.options.METHODS["twice"]


def test_a_method_of_ones_own_is_built_as_the_one_that_it_extends(monkeypatch):
    monkeypatch.setattr("bytelax.options.METHODS", {})

    class Longer(METHODS["lookup"]):
        name = "longer"

    assert Longer().build(byte_lm()) == METHODS["lookup"]().build(byte_lm())


def test_the_reference_is_made_from_the_classes():
    reference = pathlib.Path(__file__).parents[1] / "docs" / "methods.md"
    assert reference.read_text() == markdown(), (
        "python -m experiments.methods_page > docs/methods.md"
    )


@pytest.mark.slow
def test_a_rule_of_ones_own_fills_blocks():
    def leftmost(log_probs, masked):
        return masked & (masked.cumsum(1) <= 2)

    out = generate("blt-dv", block_size=4, unmask=leftmost)
    assert_same(out, plain(model, 5))
    how = {"method": "blt-d", "block_size": 4, "max_new_bytes": 16, "allow_eos": False}
    two, one = (
        bytelax.generate(model(), PROMPTS, unmask=rule, **how).results[0].stats.decoder_passes
        for rule in (leftmost, "one-step")
    )
    assert two - one == 4  # one more for each block


FOR_ANY = {"ar", "lookup", "draft-model", "spectr", "tuned"}


@pytest.mark.parametrize("name", sorted(METHODS.keys() - FOR_ANY))
def test_a_method_tells_a_model_of_ones_own_what_it_needs(name):
    config = ModelConfig()
    config.max_bytes, config.vocab_size = 64, 7
    model = types.SimpleNamespace(config=config, held={}, mesh=None, target=TableTarget)
    with pytest.raises(TargetError, match=f"{name} needs a.*, not "):
        bytelax.options.named(name).build(model)
