"""The study of late latents: what is counted at patch boundaries, and costs of latents."""

import dataclasses

import numpy as np
import pytest

from bytelax.decode import Origin
from experiments.harness import boundary, latent_costs, random_blt
from experiments.studies import late_latents

D, C, F = Origin.DRAFTED, Origin.CORRECTED, Origin.FREE


def model(window):
    shape = random_blt.SHAPES["smallest"]
    decoder = dataclasses.replace(shape.decoder, window=window)
    config = dataclasses.replace(shape, decoder=decoder, decoder_input="embedding")
    return random_blt.with_threshold(random_blt.model(config, 0), b"of the cell " * 8, 4.0)


def test_a_patch_that_closes_puts_the_rest_of_its_draft_after_the_boundary():
    # Two kept, one refused; then a whole draft of three; then two that the end of the text cuts.
    origins = [D, D, C, D, D, D, F, D, D]
    inside = boundary.counted(origins, [False] * 9)
    assert inside == (8, 7, 0, 0)
    # It closes with the first byte of the draft, and with the byte that ended the second one.
    closes = [False, True, False, False, False, False, False, True, False]
    assert boundary.counted(origins, closes) == (4, 4, 4, 3)


def test_the_byte_that_begins_a_round_closes_its_patch():
    """Its latent is not read yet when the draft is made."""
    assert boundary.counted([D, C, D], [True, False, False]) == (1, 1, 2, 1)


def test_a_patch_that_closes_in_the_last_round_does_not_matter_in_the_next():
    assert boundary.counted([C, D], [True, False]) == (1, 1, 1, 0)


def test_bytes_are_counted_in_the_band_of_the_law_that_judged_them():
    """The target's own byte after a whole draft was not drafted."""
    bits = np.array([0.0, 0.1, 0.9, 0.2, 0.3, 2.0, 3.5, 0.1])
    reached, kept = late_latents.by_band(np.array([D, D, C, D, D, D, F, C]), bits)
    assert late_latents.BANDS[:3] == (0, 0.25, 1)
    assert (reached.tolist(), kept.tolist()) == ([4, 2, 1, 0], [3, 1, 1, 0])


@pytest.mark.exhaustive
def test_costs_of_latents_are_those_of_their_stretches():
    text = bytes(range(32, 127)) * 4
    bits = latent_costs.of_batches(model(8), [text, text], length=64, each=2, batch=2)
    found = latent_costs.figures(bits)
    assert found["own"]["value"] > 1 and set(found) >= {"own", "mean", "other", "stale_1"}
    # Both texts are the same, so batches are too.
    assert found["own"]["interval"] == pytest.approx([found["own"]["value"]] * 2)
