"""No output byte of any method changes at a seed and shape: beside outputs that were recorded once.

    python tests/test_golden_outputs.py     # records them anew; only where a change is meant

Log-probabilities may differ in their last bits from one processor to another, so of those the sum
is kept to four digits.
"""

import functools
import json
import pathlib

import jax
import pytest

import bytelax
from bytelax.decode import Lossless, rejection
from bytelax.model import Model
from tests.helpers import heads_of_a_blt, self_drafting_models
from tests.helpers import models_for_tests as models

RECORDED = pathlib.Path(__file__).parent / "golden" / "outputs.json"
LAWS = {"greedy": {}, "sampled": {"temperature": 1.0, "top_p": 0.95, "seeds": [3, 5, 8]}}
# Both in one batch, so that one program writes them: a row depends on no other.
TOGETHER = {
    "temperature": [0.0] * 3 + [1.0] * 3,
    "top_p": [1.0] * 3 + [0.95] * 3,
    "seeds": [0, 1, 2, 3, 5, 8],
}
TEXTS = [b"Ragged prompts: ", b"and ", "naïve 日本".encode()]
DIGITS = [bytes([0, 1, 2, 1, 0] * 3), bytes([1, 1, 0]), bytes([2, 0, 1, 1, 2, 2, 0])]
NEW = 24
CASES = {
    "ar": ("blt", {}),
    "ar, padded": ("blt", {"window": 5}),
    "ar, byte model": ("lm", {}),
    "blt-s": ("blt", {"draft_length": 4}),
    "blt-s, encoder": ("base", {"draft_length": 4, "accept": Lossless(rejection)}),
    "blt-s, refreshed": ("blt", {"draft_length": 4, "latent": "refresh"}),
    "blt-d": ("blt", {"block_size": 4}),
    "blt-d, entropy": ("blt", {"block_size": 4, "unmask": "entropy"}),
    "blt-d, one step": ("blt", {"block_size": 4, "unmask": "one-step"}),
    "blt-dv": ("blt", {"block_size": 4}),
    "blt-dv, entropy": ("blt", {"block_size": 4, "unmask": "entropy-minus-max", "gamma": 3.0}),
    "blt-dv, refreshed": ("blt", {"block_size": 4, "unmask": "confidence", "latent": "refresh"}),
    "lookup": ("heads", {"draft_length": 3}),
    "draft-model": ("heads", {"draft_length": 3}),
    "draft-model, blt": ("blt", {"draft_length": 3}),
    "spectr": ("heads", {"draft_length": 2, "drafts": 2}),
    "early-exit": ("heads", {"exit_layer": 2}),
    "early-exit, embedding": ("heads", {"exit_layer": 1, "verify_from": "embedding"}),
    "layer-skip": ("heads", {"skip_attention": (1,), "skip_mlp": (0, 1)}),
    "medusa": ("heads", {}),
    "medusa, tree": ("heads", {"branches": (2, 2), "nodes": 5}),
    "two-byte": ("heads", {"state_layer": 2}),
    "composed": ("heads", {"draft_length": 4}),
    "eagle": ("heads", {"draft_length": 4}),
    "eagle, tree": ("heads", {"draft_length": 3, "beam": 2, "nodes": 5}),
    "eagle, blt": ("blt with heads", {"draft_length": 4}),
    "dflash": ("blt with heads", {}),
}


@functools.cache
def model(name):
    if name == "heads":
        return self_drafting_models.trunk()
    if name == "blt with heads":
        return heads_of_a_blt.blt()
    configs = {
        "blt": models.replace(models.VARIANTS["own_embedding"], block_size=6),
        "base": models.BASE,
        "lm": models.BYTE_LMS["window"],
    }
    return models.model(configs[name])


def written(case, times=1, **law):
    """What a case writes behind its texts, which are given so many times."""
    name, options = CASES[case]
    method = case.split(",")[0]
    if method in ("draft-model", "spectr"):
        flatter = jax.tree.map(lambda x: 0.9 * x, model(name).params)  # often right, not always
        options = options | {"draft_model": Model(model(name).module, flatter)}
    return bytelax.generate(
        model(name), times * (DIGITS if "heads" in name else TEXTS), method=method,
        max_new_bytes=NEW, logprobs=True, **law, **options,
    )  # fmt: skip


def told(result):
    """Of what a row wrote, as JSON."""
    return {
        "bytes": result.bytes.hex(),
        "log_prob": round(float(result.log_probs.sum()), 4),
        "rounds": result.stats.rounds,
        "drafted": result.stats.drafted,
        "accepted": result.stats.accepted,
        "passes": result.stats.decoder_passes + result.stats.global_passes,
    }


@functools.cache
def recorded():
    return json.loads(RECORDED.read_text())


# A method with other options is exhaustive: what these change is tried elsewhere.
MARKS = {case: pytest.mark.exhaustive if "," in case else pytest.mark.slow for case in CASES}
MARKS |= {"medusa": (), "medusa, tree": pytest.mark.slow}


@pytest.mark.parametrize("case", [pytest.param(case, marks=mark) for case, mark in MARKS.items()])
def test_output_is_as_it_was(case):
    """In a batch of both laws, where it was recorded in a batch of each."""
    results = [told(result) for result in written(case, times=2, **TOGETHER).results]
    before = [row for law in LAWS for row in recorded()[case][law]]
    for result, expected in zip(results, before, strict=True):
        assert result.pop("log_prob") == pytest.approx(expected.pop("log_prob"), abs=2e-3)
        assert result == expected


def test_every_method_is_recorded():
    assert {case.split(",")[0] for case in recorded()} == (
        bytelax.options.METHODS.keys() - {"tuned"}  # which is one of the others
    )


if __name__ == "__main__":
    outputs = {
        case: {
            law: [told(row) for row in written(case, **how).results] for law, how in LAWS.items()
        }
        for case in CASES
    }
    rows = ",\n".join(f"{json.dumps(case)}: {json.dumps(each)}" for case, each in outputs.items())
    RECORDED.write_text("{\n" + rows + "\n}\n")
