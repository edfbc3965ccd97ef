"""The studies of speed run through: a few bytes of everything, on texts made up here."""

import gzip
import json

import numpy as np
import pytest
from bytelax_kernels import native

from bytelax import cli
from experiments.harness import bundled_data, intervals, loops, thunks
from experiments.speed.batch import run as batch

WORDS = [b"the ", b"cell ", b"membrane ", b"is ", b"def ", b"return ", b"and ", b"of ", b"\n"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name in ("openstax_ccby", "code_stdlib", "eltec_eng"):
        (root / name).mkdir()
        text = b"".join(WORDS[i] for i in rng.integers(len(WORDS), size=3000))
        for split in bundled_data.SPLITS:
            (root / name / f"{split}.txt.gz").write_bytes(gzip.compress(text))
    for name in ("deu", "fra"):
        (root / f"tatoeba_{name}_eng").mkdir()
        lines = "Ich sehe die Zelle.\tI see the cell.\n" * 60
        for split in bundled_data.SPLITS:
            (root / f"tatoeba_{name}_eng" / f"{split}.tsv").write_text(lines)
    return str(root)


def test_accounting(smoke):
    report, table = smoke("speed/accounting")
    assert sum(row["rows"] for row in report["rows"]) == 223
    assert "219 of 223 rows" in table


def test_a_trial_of_batches_takes_what_there_is():
    """Whatever the methods are called."""
    renamed = {f"my {name}": contestant for name, contestant in batch.BLT.items()}
    assert [*batch.few(batch.PLAIN | renamed)] == ["plain", "plain, all wait", "my blt-s 8"]


@pytest.mark.exhaustive
def test_latents(smoke, tmp_path, data):
    """Plain decoding, and drafts with a head of latents that has hardly learned."""
    out = tmp_path / "run"
    text = f"{data}/openstax_ccby/valid.txt.gz"
    assert not cli.main([
        "train", "heads", "--init", "tiny", "--out", str(out), "--data", text, "--heads.latents",
        "32", "--data.batch", "2", "--data.window", "64", "--optimizer.steps", "1",
        "--optimizer.warmup", "0", "--run.validate-every", "0",
    ])  # fmt: skip
    report, table = smoke("speed/latents", "--heads", str(out))
    plain, drafted = report["rows"]
    assert plain["bytes_per_round"]["value"] == 1 < drafted["bytes_per_round"]["value"]
    assert drafted["setting"]["latents"] == "predicted"
    assert "| predicted | 16 |" in table and "Boundaries" in table
    batches = json.loads((tmp_path / "batches.json").read_text())
    (row,) = batches["rows"]
    assert all(own["same_outputs"] == row["prompts"] == 4 for own in row["ways"].values())
    waiting, plain = row["ways"]["none, rows wait"], row["ways"]["none"]
    assert waiting["global_runs_per_byte"] <= plain["global_runs_per_byte"]
    assert waiting["windows_per_byte"] >= plain["windows_per_byte"] == 1
    assert "| stale, 2 bytes, rows wait |" in (tmp_path / "batches.md").read_text()


@pytest.mark.exhaustive
def test_batch(smoke):
    report, table = smoke("speed/batch")
    (row,) = report["rows"]
    methods = row["methods"]
    assert methods[row["best_plain"]]["decode_speed"] == 1
    assert all(method["same_outputs"] == report["prompts"] == 4 for method in methods.values())
    waiting, plain = methods["plain, all wait"], methods["plain"]
    assert waiting["global_passes_per_byte"] <= plain["global_passes_per_byte"]
    assert waiting["windows_per_byte"] >= plain["windows_per_byte"] == 1
    assert "| blt-s 8 | yes |" in table and "What was predicted" in table
    assert "- `blt-s 8` is " in table


@pytest.mark.exhaustive
@pytest.mark.skipif(not native.available(), reason=str(native.why_not()))
def test_native(smoke):
    report, table = smoke("speed/native")
    assert all(row["same_bytes"] for row in report["rows"] if row["setting"]["dtype"] == "float32")
    assert all(row["in_plain_bytes"]["compiled"][0] > 1 for row in report["rows"])
    assert "| `smallest` | bfloat16 |" in table


@pytest.mark.exhaustive
def test_blt_methods(smoke):
    report, table = smoke("speed/blt_methods")
    plain, drafted = report["rows"]
    assert plain["bytes_per_round"]["value"] == 1 < drafted["bytes_per_round"]["value"]
    assert drafted["same_outputs"] == report["prompts"] == 5
    assert "A trial run" in table and "| `tiny` | blt-s | draft_length 4 |" in table


@pytest.mark.exhaustive
def test_self_drafting(smoke):
    report, table = smoke("speed/self_drafting")
    exit_, eagle = report["rows"]
    assert exit_["setting"]["exit_layer"] in report["exits"]
    assert eagle["same_outputs"] == report["prompts"] == 5
    assert "## The falsifier of the draft layer" in table and "0.95x" in table


@pytest.mark.exhaustive
def test_wall_clock(smoke):
    flags = ("--context", "24", "--new", "8", "--repeats", "1")
    report, table = smoke("speed/wall_clock", *flags)
    priced = [row["methods"] for row in report["rows"]]
    assert [sorted(methods) for methods in priced[:1]] == [["blt-s 8", "eagle 8", "plain"]]
    assert len(priced) == 2 and not any(methods["blt-s 8"]["lossless"] for methods in priced)
    for row in report["rows"]:
        assert all(method["over_floor"] > 1 for method in row["methods"].values())
    assert "acceptance as published" in table


@pytest.mark.exhaustive
def test_requests(smoke):
    report, table = smoke("speed/requests")
    assert [row["setting"]["what"] for row in report["rows"]] == ["turn", "samples", "constraint"]
    assert all(row["same_bytes"] and row["ratio"]["median"] > 0 for row in report["rows"])
    assert "| 9 bytes behind 40 kept ones, beside prefilling all of them | `tiny-lm` |" in table


@pytest.mark.exhaustive
def test_exactness(smoke):
    report, _ = smoke("quality/exactness")
    (row,) = report["rows"]
    assert row["bitwise_equal_at_the_same_window"] == report["prompts"] == 2


@pytest.mark.exhaustive
def test_draft_rules(smoke):
    report, table = smoke("speed/draft_rules")
    (row,) = report["rows"]
    assert row["setting"]["rule"] == "typical acceptance" and not row["lossless"]
    assert row["bits_per_byte"]["value"] > 0 and "A trial run" in table


@pytest.mark.exhaustive
def test_windows(smoke):
    """Drafts are full and half of each is kept; behind an empty draft hardly a patch closes."""
    report, table = smoke("speed/windows", "--repeats", "1")
    plain, row = report["rows"]
    assert set(plain["ways"]) == {"plain"} and row["setting"]["window"] == 5
    drafted, empty = row["ways"]["drafted"], row["ways"]["empty"]
    assert drafted["bytes_per_round"] == 3 and empty["bytes_per_round"] == 1
    assert "| 5 | 4 |" in table and "| window | draft | patcher |" in table


def test_operations_are_shared_out_among_the_parts_of_a_round():
    round_ = "jit(_advanced)/while/body"
    assert thunks.part_of(f"{round_}/draft/while/body/decoder/attention/dot_general") == "draft"
    assert thunks.part_of(f"{round_}/BLT.read/patcher/trunk/dot_general") == "patcher"
    assert thunks.part_of(f"{round_}/while/body/global_transformer/dot_general") == "global"
    assert thunks.part_of(f"{round_}/BLT/decoder/layers_0/dot_general") == "decoder"
    assert thunks.part_of(f"{round_}/emitted/add") == "acceptance and loop"


@pytest.mark.exhaustive
def test_agreement(smoke):
    report, table = smoke("quality/agreement")
    assert report["rows"][0]["positions"] > 0 and "56.2" in table


@pytest.mark.exhaustive
def test_vs_peers(smoke):
    pytest.importorskip("transformers")
    report, table = smoke("speed/vs_peers", "--repeats", "1", "--prompts", "1")
    blt = [row for row in report["rows"] if row["setting"]["contest"] == "blt"]
    assert all(row["bytes_agree"] for row in blt)
    rows = report["rows"][-1]["rows"]
    assert all(row["same_outputs"] == 1 for row in rows.values())
    assert "transformers, assisted" in table


@pytest.mark.exhaustive
def test_block_tables(smoke):
    report, table = smoke("speed/block_table")
    (row,) = report["rows"]
    assert row["bytes_per_round"]["value"] >= 1 and len(row["rounds"]) == report["prompts"] == 5
    assert "A trial run" in table and "| none | 0 |" in table


def test_what_a_loop_is():
    assert loops.period(b"Once upon " + b"a time and " * 4) == 11
    assert loops.period(b"Once upon a time " + b"." * 23) is None
    assert loops.period(b"Once upon a time " + b"." * 24) == 1
    assert loops.period(b"It was said, and it was said again, that it was so.") is None
    assert loops.period(b"") is None


def test_an_interval_over_prompts():
    figure = intervals.of_ratio([10, 20, 30], [10, 10, 10])
    assert figure["value"] == 2 and 1 <= figure["interval"][0] < 2 < figure["interval"][1] <= 3
    assert intervals.of_ratio([1.0], [0]) is None
    assert intervals.of_ratio([6, 6], [2, 2])["interval"] == [3, 3]
    assert intervals.shown(figure).startswith("2.00 (")
