"""The methods of a BLT by their names: what they take, and what they refuse."""

import functools

import models_for_tests as models
import numpy as np
import pytest

import bytelax

PROMPTS = [b"Ragged prompts: ", b"and ", "naïve 日本".encode()]
OWN = models.replace(models.VARIANTS["own_embedding"], block_size=6)


@functools.cache
def model():
    return models.model(OWN)


@functools.cache
def plain(window, temperature):
    return generate("ar", window=window, temperature=temperature)


def generate(method, **options):
    return bytelax.generate(
        model(), PROMPTS, method=method, max_new_bytes=16, allow_eos=False, **options
    )


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("blt-s", {"draft_length": 4, "min_confidence": 0.2}),
        ("blt-dv", {"block_size": 4, "unmask": "entropy", "gamma": 2.0}),
        ("blt-s", {"draft_length": {1: 4, 3: 2}}),
    ],
)
def test_lossless_methods_write_what_plain_decoding_does(method, options):
    out = generate(method, **options)
    assert out.lossless
    assert out.bytes == plain(5, 0.0).bytes
    assert out.stats.decoder_passes > out.stats.rounds


@pytest.mark.parametrize("verify", ["byte", "block"])
def test_sampling_depends_on_the_seed_alone(verify):
    options = {"block_size": 4, "temperature": 1.0, "verify": verify}
    first = generate("blt-dv", seeds=[3, 4, 5], **options)
    again = generate("blt-dv", seeds=[3, 9, 5], **options)
    assert first.bytes[0] == again.bytes[0] and first.bytes[2] == again.bytes[2]
    assert first.bytes[1] != again.bytes[1]


def test_blocks_are_kept_whole_and_said_to_be_so():
    out = generate("blt-d", block_size=4, unmask="one-step")
    assert not out.lossless
    assert out.stats.accepted == out.stats.bytes == 16 * len(PROMPTS)
    # A pass of its own for the first block; the others start in the pass that ends the one before.
    np.testing.assert_array_equal([r.stats.decoder_passes for r in out.results], 4 + 1)
    np.testing.assert_array_equal([r.stats.encoder_passes for r in out.results], 4)


@pytest.mark.parametrize(
    ("which", "method", "options", "message"),
    [
        ("own", "blt-d", {"block_size": 7}, "trained on blocks of up to 6"),
        ("own", "blt-dv", {"block_size": 0}, "up to 6, got 0"),
        ("own", "blt-d", {"alpha": 1.5, "block_size": 4}, "alpha is a probability"),
        ("own", "blt-d", {"unmask": "entropy", "gamma": -1.0, "block_size": 4}, "at least 0"),
        ("own", "blt-d", {"unmask": "entropy", "alpha": 0.5, "block_size": 4}, "alpha belongs to"),
        ("own", "blt-d", {"unmask": "one-step", "gamma": 0.5, "block_size": 4}, "gamma belongs to"),
        ("own", "blt-d", {"unmask": "sure", "block_size": 4}, "not one of confidence"),
        ("own", "blt-d", {"open_patch": "none", "block_size": 4}, "not one of latest"),
        ("own", "blt-dv", {"latent": "ahead", "block_size": 4}, "not one of reuse, refresh"),
        ("own", "blt-s", {"draft_length": 0}, "draft_length must lie in"),
        ("own", "blt-s", {"draft_layers": 9}, "layers 1 to 2"),
        ("own", "blt-s", {"verify": "tree"}, "not one of byte, block"),
        ("own", "blt-s", {"block_size": 4}, "takes no 'block_size'"),
        ("own", "draft-model", {}, "needs draft_model"),
        ("base", "blt-d", {}, "trained to fill in masked bytes"),
        ("lm", "blt-s", {}, "needs a Byte Latent Transformer"),
    ],
)
def test_refusals_are_one_line(which, method, options, message):
    configs = {"own": OWN, "base": models.BASE, "lm": models.BYTE_LM}
    with pytest.raises(ValueError, match=message) as refused:
        bytelax.generate(models.model(configs[which]), [b"a"], method=method, **options)
    assert "\n" not in str(refused.value)
