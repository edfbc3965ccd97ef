"""Replayed acceptance is the one asked for."""

import numpy as np
import pytest

import bytelax
from bytelax.measure import synthetic
from experiments.harness import published_fast_blt, replay
from tests.helpers import models_for_tests as models

CHANCES = (0.9, 0.6, 0.6, 0.1)


def test_a_run_keeps_what_was_foreseen():
    """By place, and to the last count: the numbers follow from the seed alone."""
    prompt, new = b"random weights", 200
    seed = replay.seed_for(CHANCES, start=1 + len(prompt), new=new)
    out = bytelax.generate(
        models.model(models.BYTE_LM), [prompt], max_new_bytes=new, allow_eos=False, seeds=seed,
        method="early-exit", exit_layer=1, draft_length=4, accept=synthetic.Replayed(CHANCES),
    )  # fmt: skip
    stats = out.stats.to_dict()
    assert stats["acceptance"] == pytest.approx(np.mean(CHANCES), rel=replay.TOLERANCE)
    replay.check("early-exit", CHANCES, stats["acceptance"])


@pytest.mark.parametrize("name", ["blt-s 8", "blt-dv 16, one step"])
def test_published_rates_are_met(name):
    """The seed that used to serve all methods kept 90.9 % where 87.16 and 84.63 were asked."""
    rates = published_fast_blt.acceptance()[name]
    start, new = 257, 256
    seed = replay.seed_for(rates, start=start, new=new)
    uniforms = replay.uniforms_of([seed], len(rates) + 1, start + new)[0]
    share = replay.kept_by_place(rates, uniforms, start=start, new=new).mean()
    assert share == pytest.approx(rates[0], rel=replay.TOLERANCE)


def test_another_acceptance_is_refused():
    rates = published_fast_blt.acceptance()["blt-s 8"]
    replay.check("blt-s 8", rates, rates[0])
    with pytest.raises(ValueError, match=r"blt-s 8 kept 0\.9090 .* where 0\.8716"):
        replay.check("blt-s 8", rates, 0.909)
