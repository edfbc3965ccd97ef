"""What cannot be is refused in one line that names it: methods, their options, and requests."""

import functools

import pytest

import bytelax
from bytelax.decode import Method
from bytelax.decode.unmasking import confidence
from bytelax.systems import (
    BlockDiffusionDrafter,
    BltSDrafter,
    LookupDrafter,
)
from tests.helpers import heads_of_a_blt, self_drafting_models
from tests.helpers import models_for_tests as models

OWN = models.replace(models.VARIANTS["own_embedding"], block_size=6)
MODELS = {
    "lm": functools.partial(models.model, models.BYTE_LM),
    "lm with heads": self_drafting_models.trunk,
    "blt": functools.partial(models.model, OWN),
    "blt of no blocks": functools.partial(models.model, models.BASE),
    "blt with heads": heads_of_a_blt.blt,
    "blt with a table": heads_of_a_blt.with_block_table,
}
UNMASK = {"method": "blt-d", "block_size": 4}
ENTROPY = UNMASK | {"unmask": "entropy"}
METHODS = [
    ("blt", {"method": "magic"}, "magic"),
    ("lm", {"method": "lookup", "draft_length": 0}, "draft_length"),
    ("lm", {"method": "lookup", "draft_length": 1024}, "draft_length"),
    ("lm", {"method": "lookup", "draft_length": 1.5}, "a whole number below 2.*, got 1.5"),
    ("lm", {"method": "lookup", "draft_length": {10**10: 4}}, "draft_length is a whole"),
    ("lm", {"method": "lookup", "draft_length": "4"}, "a whole number below 2.*, got '4'"),
    ("lm", {"method": "lookup", "draft_length": True}, "a whole number below 2.*, got True"),
    ("lm", {"method": "lookup", "draft_length": "9" * 5000}, r"length is .*, got '9+\.\.\.9+'"),
    ("lm", {"method": "lookup", "latent": "reuse"}, "takes no 'latent'"),
    ("lm", {"method": "lookup", "draft_length": 4, "window": 1025}, "window must lie in 5..1024"),
    ("lm", {"method": "draft-model"}, "needs draft_model"),
    ("lm", {"method": "draft-model", "draft_model": None}, "needs draft_model"),
    ("lm", {"method": "draft-model", "draft_model": "nowhere at all"}, "nowhere at all"),
    ("lm", {"method": "draft-model", "draft_model": 5}, "is a model or names one, got 5"),
    ("lm", {"method": "draft-model", "draft_model": "tiny", "window": 4}, "must lie in 5..1024"),
    ("lm", {"method": "draft-model", "beam": 3}, "takes no 'beam'"),
    ("lm", {"method": "spectr"}, "needs draft_model"),
    # Heads that are not there, and more than they can.
    ("lm", {"method": "medusa"}, "no multi-byte heads"),
    ("lm", {"method": "two-byte"}, "no two-byte head"),
    ("lm", {"method": "eagle"}, "no trained layers of eagle"),
    ("lm", {"method": "dflash"}, "no trained layers of dflash"),
    ("lm", {"method": "eagle", "beam": 0}, "beam and nodes must be at least 1"),
    ("lm", {"method": "eagle", "beam": 10**9}, "beam at most 256; got 1000000000"),
    ("lm", {"method": "eagle", "beam": 2, "nodes": 0}, "beam and nodes must be at least 1"),
    ("lm", {"method": "medusa", "branches": (300,)}, "a node has 1..256 branches"),
    ("lm", {"method": "medusa", "branches": (2.5,)}, r"is a list of whole numbers, got \(2.5,\)"),
    ("lm with heads", {"method": "early-exit", "exit_layer": 3}, "one of the first 2, got 3"),
    (
        "lm with heads",
        {"method": "early-exit", "exit_layer": 1, "exit_head": True},
        "no exit head",
    ),
    ("lm with heads", {"method": "composed", "draft_length": 3}, "an even length, got 3"),
    ("lm with heads", {"method": "composed", "exit_layer": 1}, "no two-byte head"),
    ("lm with heads", {"method": "layer-skip", "skip_mlp": (3,)}, "cannot skip"),
    ("lm with heads", {"method": "medusa", "draft_length": 4}, "3 multi-byte heads"),
    (
        "lm with heads",
        {"method": "medusa", "branches": (2,), "draft_length": 1},
        "from branches",
    ),
    ("lm with heads", {"method": "two-byte", "state_layer": 1}, "no two-byte head after layer 1"),
    ("blt", {"method": "early-exit"}, "needs a byte transformer"),
    ("blt", {"method": "eagle"}, "no trained layers of eagle"),
    ("blt", {"method": "medusa"}, "no multi-byte heads"),
    ("blt with heads", {"method": "dflash", "draft_length": 4}, "up to 3 bytes, got 4"),
    ("blt with heads", {"method": "dflash", "draft_length": -1}, "up to 3 bytes, got -1"),
    ("blt with heads", {"method": "medusa", "branches": (2,)}, "needs a byte transformer"),
    ("blt with heads", {"method": "eagle", "beam": 2}, "needs a byte transformer"),
    # Of BLTs.
    ("lm", {"method": "blt-s"}, "^blt-s needs a Byte Latent"),
    ("lm", {"method": "blt-d"}, "^blt-d needs a Byte Latent Transformer, not a byte transformer$"),
    ("blt", {"method": "blt-s", "draft_length": 0}, "draft_length must lie in"),
    ("blt", {"method": "blt-s", "draft_length": {1: 4}}, "a whole number below .*, got {1: 4}"),
    ("blt", {"method": "blt-s", "draft_length": 4, "window": 4}, "5..1024, got 4: a round drafts"),
    ("blt", {"method": "blt-s", "block_size": 4}, "takes no 'block_size'"),
    ("blt", {"method": "blt-s", "latent": "predicted"}, "no head of latents"),
    ("blt", {"method": "blt-d", "block_size": 7}, "trained on blocks of up to 6"),
    ("blt", {"method": "blt-dv", "block_size": 0}, "up to 6, got 0"),
    ("blt", {"method": "blt-dv", "block_size": 4, "window": 0}, "window must lie in 5..1024"),
    ("blt", {"method": "blt-dv", "block_size": 4, "table": True}, "no block table"),
    ("blt", {"method": "blt-dv", "latent": "ahead", "block_size": 4}, "one of reuse, refresh, got"),
    ("blt", UNMASK | {"alpha": "1"}, "is a number or None, got '1'"),
    ("blt", UNMASK | {"alpha": 1.5}, "alpha is a probability"),
    ("blt", UNMASK | {"unmask": "sure"}, "one of confidence"),
    ("blt", UNMASK | {"unmask": "one-step", "gamma": 0.5}, "has no gamma"),
    ("blt", ENTROPY | {"gamma": -1.0}, "at least 0"),
    ("blt", ENTROPY | {"alpha": 0.5}, "has no alpha"),
    (
        "blt of no blocks",
        {"method": "blt-d"},
        r"^[^']*trained to fill in masked bytes[^']*'blt-d'\)$",
    ),
    (
        "blt with a table",
        {"method": "blt-dv", "block_size": 3, "table": True, "unmask": "confidence"},
        "one-step",
    ),
    # Of requests.
    ("lm", {"prompts": []}, "no prompt"),
    ("lm", {"max_new_bytes": 0}, "max_new_bytes"),
    ("lm", {"max_new_bytes": -1}, "max_new_bytes"),
    ("lm", {"max_new_bytes": 2**40}, "exceed the model's context of 1023 bytes"),
    ("lm", {"prompts": [b"a" * 1015], "max_new_bytes": 9}, "context of 1023 bytes"),
    ("lm", {"draft": 3}, "draft"),
    ("lm", {"seed": 3}, "^generate takes no 'seed'; did you mean 'seeds'\\?$"),
    ("lm", {"max_new_tokens": 3}, "did you mean 'max_new_bytes'"),
    ("lm", {"drafts": 3}, "'ar' takes no 'drafts'"),  # an option of another method
    ("lm", {"temperature": -0.1}, "temperature"),
    ("lm", {"temperature": float("nan")}, "temperature"),
    ("lm", {"temperature": 1e39}, r"must be 0 \(greedy\), or lie in 0.0001..1e\+06, got 1e\+39"),
    ("lm", {"temperature": [0.1, 0.9]}, r"temperature is a number, got \[0.1, 0.9\]"),
    ("lm", {"top_p": 0.0}, "top_p"),
    ("lm", {"top_p": 1.5}, "top_p"),
    ("lm", {"top_k": -2}, "top_k"),
    ("lm", {"window": 0}, "window"),
    ("lm", {"seeds": -1}, "seeds"),
    ("lm", {"seeds": 2**32}, "seeds"),
    ("lm", {"seeds": [1, 2]}, "seeds"),
    ("lm", {"samples": 3, "seeds": [1, 2]}, "2 seeds for 3"),
    ("lm", {"samples": 0}, "samples must be a number from 1"),
    ("lm", {"samples": True}, "samples must be a number from 1"),
    ("lm", {"stop": [b"ok", b""]}, "stop string"),
]


@pytest.mark.parametrize(("which", "options", "says"), METHODS, ids=lambda x: str(x)[:40])
def test_generate(which, options, says):
    options = {"prompts": [b"a"]} | options
    with pytest.raises(ValueError, match=says) as refused:
        bytelax.generate(MODELS[which](), **options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        ("stream", {"every": 0}, "every"),
        ("stream", {"max_new_bytes": 0}, "max_new_bytes"),
        ("stream", {"window": 0}, "window"),
        ("stream", {"seeds": -1}, "seeds"),
        ("stream", {"seeds": [1, 2]}, "2 seeds for 1 prompts"),
        ("stream", {"seed": 1}, "stream takes no 'seed'; did you mean 'seeds'"),
        ("stream", {"evry": 1}, "did you mean 'every'"),
        ("stream", {"temperature": [0.1, 0.9]}, r"temperature is a number, got \[0.1, 0.9\]"),
        ("stream", {"errors": "replaced"}, "errors: unknown error handler name 'replaced'"),
        ("stream", {"samples": 2}, "stream takes no samples"),
        ("stream", {"progress": True}, "stream takes no progress; generate does"),
        ("generate_many", {"samples": 2}, "generate_many takes no samples"),
        ("generate_many", {"batch": 0}, "batch"),
        ("generate_many", {"max_new_bytes": 0}, "max_new_bytes"),
        ("generate_many", {"seed": 3}, "did you mean 'seeds'"),
        ("generate_many", {"batches": 3}, "did you mean 'batch'"),
        ("turns", {"samples": 2}, "turns takes no samples"),
        ("turns", {"prompts": []}, "there is no text to continue"),
        ("turns", {"prompts": ["a" * 500] * 3}, "context of 1023 bytes"),
    ],
)
def test_other_functions(function, options, says):
    prompts = options.pop("prompts", ["a"])
    with pytest.raises(ValueError, match=says):
        list(getattr(bytelax, function)(MODELS["lm"](), prompts, **options))


def method_of_blt(drafter):
    return lambda: Method(models.model(models.BASE).target(), drafter)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LookupDrafter(3, 0, 4), "a match has 1..256 bytes"),
        (lambda: LookupDrafter(3, 4, 2**31), "1..256 bytes"),
        (lambda: LookupDrafter(3, 5, 4), "must not exceed"),
        # Unchecked, a misspelled latent would be taken for "reuse".
        (lambda: BltSDrafter(4, latent="reused"), "latent"),
        (lambda: BlockDiffusionDrafter(4, confidence(0.5), "reused"), "latent"),
        (method_of_blt(BlockDiffusionDrafter(4, confidence(0.5))), "decoder_input='embedding'"),
        (method_of_blt(BltSDrafter(4, "predicted")), "no head of latents"),
        (lambda: models.replace(heads_of_a_blt.TABLED, block_size=2), "not 2"),
    ],
)
def test_drafters_and_configs(make, says):
    with pytest.raises(Exception, match=says):  # of a check, or of types while tests run
        make()
