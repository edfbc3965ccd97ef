"""The methods of a BLT by their names: what they take, and what they refuse."""

import dataclasses
import functools
import pathlib
import types
import typing

import numpy as np
import pytest

import bytelax
from bytelax.commands.methods import markdown
from bytelax.decode import Lossless, rejection, unmasking
from bytelax.models.configs import ModelConfig
from bytelax.options import METHODS, TargetError
from bytelax.systems import BltSDrafter
from bytelax.testing import TableTarget
from tests.helpers import models_for_tests as models
from tests.helpers.heads_of_a_blt import with_latents

PROMPTS = [b"Ragged prompts: ", b"and ", "naïve 日本".encode()]
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
    return bytelax.generate(
        which(), PROMPTS, method=method, max_new_bytes=new, allow_eos=False, logprobs=True,
        **options,
    )  # fmt: skip


def assert_same(out, other):
    """Bitwise, what the model thinks of the bytes included."""
    assert out.lossless and out.bytes == other.bytes
    for one, two in zip(out.results, other.results, strict=True):
        np.testing.assert_array_equal(one.log_probs, two.log_probs)


@pytest.mark.slow  # with fewer layers: decode/drafters/
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("blt-dv", {"block_size": 4, "unmask": "entropy", "gamma": 2.0, "window": 9}),
        pytest.param("blt-s", {"draft_length": 4}, marks=pytest.mark.exhaustive),
        pytest.param("blt-s", {"draft_length": 4, "window": 9}, marks=pytest.mark.exhaustive),
    ],
)
def test_lossless_methods_write_what_plain_decoding_does(method, options):
    out = generate(method, **options)
    assert_same(out, plain(model, options.get("window", 5)))
    assert out.stats.decoder_passes > out.stats.rounds
    places = out.stats.drafted_by_position
    assert places[0] > 0 and not any(places[4:])


@pytest.mark.slow  # in shorter windows: decode/drafters/test_lossless.py
@pytest.mark.parametrize("window", [pytest.param(6, marks=pytest.mark.exhaustive), 9])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lookup", {"draft_length": 5}),
        ("draft-model", {"draft_length": 5}),
    ],
)
def test_windows_of_byte_models_are_as_wide_as_is_asked_for(method, options, window):
    if method == "draft-model":
        options = options | {"draft_model": byte_lm()}
    new = 64  # texts that repeat themselves, which a lookup needs
    out = generate(method, which=byte_lm, window=window, new=new, **options)
    assert_same(out, plain(byte_lm, window, new))
    assert out.stats.accepted > 0
    assert len(out.stats.drafted_by_position) == window - 1


@pytest.mark.slow  # enumerated: decode/test_exact_law.py
@pytest.mark.parametrize(
    "accept",
    [pytest.param(Lossless(rejection), id="byte", marks=pytest.mark.exhaustive), None],
)
def test_sampling_depends_on_the_seed_alone(accept):
    options = {"block_size": 4, "temperature": 1.0, "accept": accept}
    first = generate("blt-dv", seeds=[3, 4, 5], **options)
    again = generate("blt-dv", seeds=[3, 9, 5], **options)
    assert first.bytes[0] == again.bytes[0] and first.bytes[2] == again.bytes[2]
    assert first.bytes[1] != again.bytes[1]


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


@pytest.mark.parametrize(
    ("which", "method", "options", "message"),
    [
        ("own", "blt-d", {"block_size": 7}, "trained on blocks of up to 6"),
        ("own", "blt-dv", {"block_size": 0}, "up to 6, got 0"),
        ("own", "blt-d", {"alpha": 1.5, "block_size": 4}, "alpha is a probability"),
        ("own", "blt-d", {"unmask": "entropy", "gamma": -1.0, "block_size": 4}, "at least 0"),
        ("own", "blt-d", {"unmask": "entropy", "alpha": 0.5, "block_size": 4}, "has no alpha"),
        ("own", "blt-d", {"unmask": "one-step", "gamma": 0.5, "block_size": 4}, "has no gamma"),
        ("own", "blt-d", {"unmask": "sure", "block_size": 4}, "not one of confidence"),
        ("own", "blt-dv", {"latent": "ahead", "block_size": 4}, "not one of reuse, refresh"),
        ("own", "blt-s", {"draft_length": 0}, "draft_length must lie in"),
        ("own", "blt-s", {"draft_length": {1: 4}}, "a whole number below .*, got {1: 4}"),
        (
            "own",
            "blt-s",
            {"draft_length": 4, "window": 4},
            "5..1024, got 4: a round drafts",
        ),
        ("own", "blt-dv", {"block_size": 4, "window": 0}, "window must lie in 5..1024"),
        ("lm", "lookup", {"draft_length": 4, "window": 1025}, "window must lie in 5..1024"),
        ("lm", "draft-model", {"draft_model": "tiny", "window": 4}, "window must lie in 5..1024"),
        ("own", "blt-s", {"block_size": 4}, "takes no 'block_size'"),
        ("own", "draft-model", {}, "needs draft_model"),
        ("lm", "blt-d", {}, "^blt-d needs a Byte Latent Transformer, not a byte transformer$"),
        ("own", "blt-dv", {"block_size": 4, "table": True}, "no block table"),
        ("base", "blt-d", {}, r"^[^']*trained to fill in masked bytes[^']*'blt-d'\)$"),
        ("lm", "blt-s", {}, "^blt-s needs a Byte Latent"),
    ],
)
def test_refusals_are_one_line(which, method, options, message):
    configs = {"own": OWN, "base": models.BASE, "lm": models.BYTE_LM}
    with pytest.raises(ValueError, match=message) as refused:
        bytelax.generate(models.model(configs[which]), [b"a"], method=method, **options)
    assert "\n" not in str(refused.value)


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


def test_the_reference_is_made_from_the_classes():
    reference = pathlib.Path(__file__).parents[1] / "docs" / "methods.md"
    assert reference.read_text() == markdown(), "bytelax methods --markdown > docs/methods.md"


@pytest.mark.slow
def test_a_rule_of_ones_own_fills_blocks():
    def leftmost(log_probs, masked):
        return masked & (masked.cumsum(1) <= 2)

    out = generate("blt-dv", block_size=4, unmask=leftmost)
    assert_same(out, plain(model, 5))
    steps = bytelax.generate(
        model(), PROMPTS, method="blt-d", block_size=4, unmask=leftmost, max_new_bytes=16,
        allow_eos=False, origins=True,
    ).results[0].origins.step  # fmt: skip
    assert steps.tolist() == [1, 1, 2, 2] * 4


FOR_ANY = {"ar", "lookup", "draft-model", "spectr", "tuned"}


@pytest.mark.parametrize("name", sorted(METHODS.keys() - FOR_ANY))
def test_a_method_tells_a_model_of_ones_own_what_it_needs(name):
    config = ModelConfig()
    config.max_bytes, config.vocab_size = 64, 7
    model = types.SimpleNamespace(config=config, held={}, mesh=None, target=TableTarget)
    with pytest.raises(TargetError, match=f"{name} needs a.*, not "):
        bytelax.options.named(name).build(model)
