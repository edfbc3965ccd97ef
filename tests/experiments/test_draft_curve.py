"""The study of a draft layer by the text that it learned from, without a training run."""

import pytest

from experiments.training.draft_curve import figure, run, train


def figures(value):
    return {"value": value, "interval": [value - 0.1, value + 0.1]}


def row(name, megabytes, kept, *, length=12, temperature=0.0):
    setting = {"run": name, "method": "eagle", "temperature": temperature}
    setting |= {"draft_length": length, "trained": {"bytes": megabytes * 10**6}}
    same = ("bytes_per_round", "bytes_per_round_without_loops", "kept_per_round_without_loops")
    return {"setting": setting, "loops": 1, "acceptance": figures(kept / length), "load": 0.1} | {
        each: figures(kept) for each in same
    }


def report(*rows):
    conditions = {"model": "tiny-lm", "prompts": 64, "prompt_bytes": 128, "new": 128}
    return conditions | {"machine": "here", "jax": "0", "rows": list(rows)}


@pytest.mark.parametrize(("kept", "fires"), [(5.9, True), (6.1, False)])
def test_the_falsifier_is_judged_on_the_most_text(kept, fires):
    rows = row("layer-1", 1, 6.5), row("layer-3", 3, kept), row("layer-3-seed1", 3, 6.5)
    found = report(*rows)
    said = run.falsifier(found)
    assert said.startswith("The falsifier fires" if fires else "The falsifier does not fire")
    assert f"after 3.0 MB the layer keeps {kept}" in said
    assert f"| eagle | draft_length 12 | 3.0 | 0 | 0 | {kept:.2f} " in run.markdown(found)
    pytest.importorskip("matplotlib")
    assert figure.draw(found) is not None


def test_what_was_not_trained_is_not_asked(tmp_path):
    assert run.settings(tmp_path) == []
    (tmp_path / "layer-3" / "heads").mkdir(parents=True)
    (tmp_path / "small-3" / "model").mkdir(parents=True)
    asked = run.settings(tmp_path)
    assert {each["run"] for each in asked} == {"layer-3", "small-3"}
    assert len(asked) == 8
    (tmp_path / "small-3-seed2" / "model").mkdir(parents=True)
    assert len(run.settings(tmp_path)) == 12


@pytest.mark.parametrize("stage", train.STAGES)
def test_every_stage_reads_its_megabytes_in_an_order_of_its_own(stage):
    words = train.recipe(stage, None, None)
    steps = int(words[words.index("--optimizer.steps") + 1])
    first, _, seed = stage.partition("-seed")
    assert steps * train.WINDOW * train.BATCH == pytest.approx(
        train.MEGABYTES[first] * 1e6, rel=0.01
    )
    seeds = {each: int(words[words.index(each) + 1]) for each in ("--data.seed", "--run.seed")}
    assert seeds == {"--data.seed": 3 + int(seed or 0), "--run.seed": int(seed or 0)}
