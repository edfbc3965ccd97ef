"""The study of decoder windows: what is counted at patch boundaries, and a run on a random BLT."""

import dataclasses

import pytest

from bytelax import checkpoints
from bytelax.decode import Origin
from experiments.harness import latent_costs, random_blt
from experiments.training.decoder_window import boundary, run, train
from tests.helpers import score_data

D, C, F = Origin.DRAFTED, Origin.CORRECTED, Origin.FREE


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    score_data.write(root)
    return str(root)


def model(window):
    shape = random_blt.SHAPES["smallest"]
    decoder = dataclasses.replace(shape.decoder, window=window)
    config = dataclasses.replace(shape, decoder=decoder, decoder_input="embedding")
    return random_blt.with_threshold(random_blt.model(config, 0), b"of the cell " * 8, 4.0)


def test_a_patch_that_closes_puts_the_rest_of_its_draft_behind_the_boundary():
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


@pytest.mark.exhaustive
def test_costs_of_latents_are_those_of_their_stretches():
    text = bytes(range(32, 127)) * 4
    bits = latent_costs.of_batches(model(8), [text, text], length=64, each=2, batch=2)
    found = latent_costs.figures(bits)
    assert found["own"]["value"] > 1 and set(found) >= {"own", "mean", "other", "stale_1"}
    # Both texts are the same, so batches are too.
    assert found["own"]["interval"] == pytest.approx([found["own"]["value"]] * 2)


@pytest.mark.exhaustive
def test_decoder_window(smoke, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    seeing = model(128)
    for stage in train.STAGES[:2]:
        checkpoints.write(runs / stage / "model", seeing.config, seeing.params, layout="orbax")
    report, page = smoke("training/decoder_window", "--runs", str(runs))
    assert [row["setting"]["stage"] for row in report["rows"]] == [*train.STAGES[:2]]
    one, other = report["rows"]
    assert one["bits"] == other["bits"] and one["T=1"] == other["T=1"]
    assert len(one["mean_by_genre"]) == 5
    for temperature in ("T=0", "T=1"):
        drafted = one[temperature]["all"]["4"]
        assert drafted["bytes_per_round"]["value"] > 1
        low, high = drafted["weights"]["interval"]
        assert 0 < low <= drafted["weights"]["value"] <= high
    assert "left out: window128-layers3, window512-layers3" in page and "A trial run" in page
    assert "| `window8-layers3` | 4 |" in page and "| 95 to 99 |" in page
    # Before the boundary a draft is what plain decoding writes.
    assert drafted["kept_before"]["value"] == 1


def test_rows_of_models_that_are_elsewhere_stay(tmp_path):
    measured = [{"setting": {"stage": stage, "weights": "old"}} for stage in train.STAGES[1:3]]
    model = tmp_path / train.STAGES[1] / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    kept = run.settings(tmp_path, measured)
    assert [each["stage"] for each in kept] == list(train.STAGES[1:3])
    assert kept[0]["weights"] != "old" and kept[1]["weights"] == "old"
