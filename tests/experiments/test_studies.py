"""Every study runs on a few bytes, of texts made up here, and its table is made."""

import importlib
import json
import pathlib
import tomllib

import pytest
from bytelax_kernels import native

import bytelax
from bytelax.commands import train
from experiments import studies, tables
from experiments.harness import intervals, loops
from experiments.recipes import __main__ as recipes
from experiments.recipes import rule_tasks_data
from experiments.studies import batch, blt_methods, rule_tasks
from tests.helpers import score_data

ASSETS = pathlib.Path(bytelax.__file__).parent / "assets"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    score_data.write(root)
    return str(root)


@pytest.fixture
def smoke(data, tmp_path, monkeypatch):
    """Runs a study twice, with nothing left to measure the second time; returns its rows."""

    def run(name, *flags):
        module = importlib.import_module(f"{studies.__name__}.{name}")
        results = tmp_path / "results"
        command = [name, "--data", data, "--results", str(results), "--smoke", *flags]
        monkeypatch.setattr("sys.argv", command)
        module.main()
        (path,) = results.glob(f"{name}@*.json")
        written = path.read_text()
        module.main()
        assert path.read_text() == written
        assert "\n|---|" in "\n".join(tables.section(name, results))
        return json.loads(written)["rows"]

    return run


def test_projections(smoke):
    rows = {row["setting"]["what"]: row for row in smoke("projections")}
    assert rows["exit head"]["parameters"] == 768 + 768 * 256
    assert rows["two-byte head"]["parameters"] == 2 * 768 * 768
    assert rows["three heads for four bytes"]["parameters"] == 3 * (768 * 768 + 768 * 256)
    # One byte from six of twelve layers, and the rest, which go on from there, for both bytes.
    assert rows["early exit"]["verified"] == pytest.approx(1.42 / 1.5, rel=1e-4)


def test_accounting(smoke):
    rows = smoke("accounting")
    assert sum(row["rows"] for row in rows) == 223 and sum(row["close"] for row in rows) == 219


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    ["agreement", "blt_methods", "bundled", "one_step", "self_drafting", "windows"],
)
def test_study(smoke, name):
    rows = smoke(name)
    for row in rows:
        if row.get("lossless") and not row["setting"].get("temperature"):
            assert row["same_outputs"] == 5
        if row.get("bytes_per_round"):
            assert row["bytes_per_round"]["value"] > 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["accelerator_decode", "accelerator_training"])
def test_study_of_an_accelerator(smoke, name):
    assert not any("failed" in row for row in smoke(name))


@pytest.mark.exhaustive
def test_batch(smoke):
    plain, drafted = smoke("batch")
    assert (plain["method"], drafted["method"]) == ("ar", "blt-s")
    assert plain["windows_per_byte"] == 1
    assert drafted["same_outputs"] == 4
    assert batch.METHODS["tiny"][0] == ("blt-s", drafted["options"])


@pytest.mark.exhaustive
@pytest.mark.skipif(not native.available(), reason=str(native.why_not()))
def test_native(smoke):
    rows = smoke("native")
    assert all(row["same_bytes"] for row in rows if row["setting"]["dtype"] == "float32")
    assert all(row["compiled_in_plain_bytes"]["value"] > 1 for row in rows)


@pytest.mark.exhaustive
def test_wall_clock(smoke):
    rows = smoke("wall_clock")
    assert {row["method"] for row in rows} == {"plain", "blt-s 8", "eagle 8"}
    assert all(row["over_floor"] > 1 for row in rows)


@pytest.mark.exhaustive
def test_exactness(smoke):
    (row,) = smoke("exactness")
    assert row["same_bits"] == row["outputs"] == 2


@pytest.mark.exhaustive
def test_vs_peers(smoke):
    pytest.importorskip("transformers")
    assert all(row["same_bytes"] for row in smoke("vs_peers"))


@pytest.mark.exhaustive
def test_vs_llama_cpp(smoke):
    pytest.importorskip("llama_cpp")
    rows = smoke("vs_llama_cpp")
    assert {row["what"] for row in rows} == {"plain byte", "pass of 5", "pass of 9", "drafted byte"}
    exact = [row for row in rows if row["setting"]["dtype"] == "float32"]
    assert all(row["same_bytes"] in (True, None) for row in exact)


@pytest.mark.exhaustive
def test_tuned(smoke, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rows = smoke("tuned")
    assert max(row["of_the_fastest"] for row in rows) == 1
    assert all(row["expected"] > 0 for row in rows)


@pytest.mark.exhaustive
def test_late_latents(smoke, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "window8-layers3").symlink_to(ASSETS / "tiny")
    rows = smoke("late_latents", "--runs", str(tmp_path / "runs"))
    models = [row["setting"]["model"] for row in rows[::2]]
    assert models[:2] == ["tiny", "tiny-d"] and models[-1] == "window8-layers3"
    assert all(row["kept_before"]["value"] == 1 for row in rows if row.get("kept_before"))
    # The last one is `tiny`, too.
    assert [rows[-1][name] for name in ("costs", "acceptance")] == [
        rows[1][name] for name in ("costs", "acceptance")
    ]


@pytest.mark.exhaustive
def test_rule_tasks(smoke, tmp_path):
    """With a bundled model, which answers nothing right."""
    rule_tasks_data.write(tmp_path / "tasks", train=100, test=8)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "task").symlink_to(ASSETS / "tiny")
    flags = ("--tasks", str(tmp_path / "tasks"), "--runs", str(tmp_path / "runs"))
    plain, drafted = smoke("rule_tasks", *flags)
    assert plain["weights_read"]["value"] == 1 != drafted["weights_read"]["value"]
    assert plain["exact_match"]["value"] == drafted["exact_match"]["value"]
    assert drafted["rounds"] < plain["rounds"] == pytest.approx(plain["bytes"], abs=1)
    assert 0 <= plain["ranked_first"]["value"] <= 1 < plain["bits_per_byte"]["value"]


@pytest.mark.parametrize("stage", recipes.STAGES)
def test_recipe_is_a_config_of_a_run(stage, data, tmp_path):
    file = tmp_path / "stage.toml"
    file.write_text(recipes.config(stage, data, tmp_path))
    kind = tomllib.loads(file.read_text())["kind"]
    run = train.default(kind, ["--config", str(file), "--out", str(tmp_path / stage)])
    assert type(run) is train.KINDS[kind] and run.optimizer.name == "muon"
    assert all(source.path.startswith((data, str(tmp_path))) for source in run.data.sources)


def test_recipe_trains_into_the_directory_of_its_seed(data, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(recipes.cli, "main", lambda flags: called.extend(flags))
    command = ["recipes", "task-d", "--data", data, "--runs", str(tmp_path), "--seed", "2"]
    monkeypatch.setattr("sys.argv", [*command, "--optimizer.steps", "9"])
    recipes.main()
    assert called[:2] == ["train", "blt-d"] and str(tmp_path / "task-d-2") in called
    assert called[-6:] == ["--data.seed", "2", "--run.seed", "2", "--optimizer.steps", "9"]


def test_recipes_that_differ_in_a_few_lines(data, tmp_path):
    def fields(stage):
        return tomllib.loads(recipes.config(stage, data, tmp_path))

    late, short = fields("late"), fields("late-patch1.7")
    assert short["model"].pop("patching") == {"threshold": 1.2834, "max_patch_length": 8}
    assert late["model"].pop("patching")["threshold"] > 1.2834
    assert short.pop("objective")["max_patches"] == 400 > late.pop("objective")["max_patches"]
    assert short == late
    task, scratch = fields("task"), fields("task-scratch-d4")
    published = scratch["objective"].pop("corruption")
    assert published == {"block_sizes": [4], "smallest_t": 0.0}
    assert (task.pop("kind"), scratch.pop("kind")) == ("blt", "blt-d") and scratch == task


def test_rule_tasks_look_for_the_runs_of_the_recipes(tmp_path):
    assert {name for name, _ in rule_tasks.TRAINED} <= {*recipes.STAGES}
    for name in ("task", "task-more-2", "task-d-2", "task-scratch-d4"):
        (tmp_path / name).symlink_to(ASSETS / "tiny")
    made = rule_tasks.settings(tmp_path)
    # At every length `blt-s` twice; of a BLT-D what is published, three more, and `blt-dv` twice.
    sizes, published = len(rule_tasks.BLOCK_SIZES), sum(map(len, blt_methods.RULES.values()))
    of_size = 2 + published + 2
    assert len(made) == (1 + 2 * sizes) + 1 + (1 + sizes * of_size) + (1 + of_size)


def test_wrong_answers_look_like_the_right_one():
    read = {"task": "read", "answer": "4213"}
    assert rule_tasks.wrong(read, ["4213", "42", "9999", "4219", "4013", "17600"]) == [
        "4013", "4219", "9999",
    ]  # fmt: skip
    orders = rule_tasks.wrong({"task": "sort", "answer": "fig kiwi plum"}, [])
    assert orders == ["kiwi fig plum", "fig plum kiwi", "kiwi plum fig"]


def test_loops_period():
    assert loops.period(b"Once upon " + b"a time and " * 4) == 11
    assert loops.period(b"Once upon a time " + b"." * 23) is None
    assert loops.period(b"Once upon a time " + b"." * 24) == 1
    assert loops.period(b"It was said, and it was said again, that it was so.") is None
    assert loops.period(b"") is None


def test_intervals_of_ratio():
    figure = intervals.of_ratio([10, 20, 30], [10, 10, 10])
    assert figure["value"] == 2 and 1 <= figure["interval"][0] < 2 < figure["interval"][1] <= 3
    assert intervals.of_ratio([1.0], [0]) is None
    assert intervals.of_ratio([6, 6], [2, 2])["interval"] == [3, 3]
