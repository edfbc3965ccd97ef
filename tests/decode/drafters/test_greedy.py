"""Greedy output is that of the empty draft in the same windows, whatever drafts: bit for bit."""

import numpy as np

from bytelax.systems import BltSDrafter, EagleDrafter, LayerSkipDrafter
from tests.helpers import decoding as loops
from tests.helpers import self_drafting_models as lms
from tests.helpers import setups
from tests.helpers.models_for_tests import VARIANTS, model

# Where trees lie otherwise in the caches, or an exit ran at another width.
ROUNDING = 2e-5
CASES = setups.SETUPS | {
    "blt-s on encoder states": setups.on_blt(BltSDrafter(4), lambda: model(VARIANTS["base"])),
    "blt-s, refreshed, on encoder states": setups.on_blt(
        BltSDrafter(4, latent="refresh"), lambda: model(VARIANTS["base"])
    ),
    "predicted latents, cut": setups.on_blt(BltSDrafter(5, "predicted"), setups.cut_blt),
    "eagle, biases and norms": setups.on_lm(EagleDrafter(3), lms.qwen),
    "layer skip, biases and norms": setups.on_lm(
        LayerSkipDrafter(3, no_attention=(1,), no_mlp=(0,)), lms.qwen
    ),
    "fewer nodes than levels": setups.on_lm(EagleDrafter(3, beam=2, depth=6)),
}
TO_ROUNDING = setups.TO_ROUNDING | {"fewer nodes than levels"}


def prompts(setup):
    return loops.prompts(values=min(256, setup.target.module.config.vocab_size - 4))


def written(setup, method):
    return loops.decoded(method, setup.params, ids=prompts(setup))


def some_latents_are_predicted(counts):
    passes = counts.draft_passes
    return ((passes.draft_model > 0) & (passes.draft_model < passes.decoder)).all()


CHECKS = {
    "blt-dv in order": lambda counts: (counts.draft_passes.decoder == counts.rounds).all(),
    "predicted latents": some_latents_are_predicted,
    "predicted latents, cut": some_latents_are_predicted,
}


@setups.each(
    names=CASES,
    fast=["draft model"],
    slow=[  # the others by name, on the bundled models: ../../test_greedy_rows.py
        "medusa", "two-byte", "handed over", "lookup", "dflash", "eagle of a blt",
        "blt-dv in order", "medusa tree", "eagle tree", "several", "blt-s on encoder states",
        "blt-s, refreshed, on encoder states", "predicted latents, cut",
        "layer skip, biases and norms",
        "fewer nodes than levels",
    ],
)  # fmt: skip
def test_greedy_output_is_that_of_the_empty_draft(name):
    check(CASES[name](), within=ROUNDING if name in TO_ROUNDING else 0, more=CHECKS.get(name))


@setups.each(names=["eagle", "predicted latents", "blt-dv"], slow=["eagle", "predicted latents"])
def test_in_bfloat16(name):
    check(CASES[name]().in_bfloat16())


def check(setup, *, within=0, more=None):
    decoding = written(setup, setup.method())
    loops.assert_same(decoding, written(setup, setup.without_drafts()), within=within)
    counts = decoding.counts
    np.testing.assert_array_equal(counts.bytes, loops.BUDGETS)
    assert 0 < counts.accepted.sum() < counts.drafted.sum()
    assert more is None or more(counts)
