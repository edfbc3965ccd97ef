"""`bytelax eval`: what it prints, keeps and refuses."""

import json

import pytest

from bytelax import cli
from bytelax.measure import multiple_choice


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    (root / "piqa").mkdir()
    row = {"goal": "Open it", "sol1": "pull", "sol2": "push it away"}
    (root / "piqa" / "valid.jsonl").write_text(4 * (json.dumps(row) + "\n"))
    (root / "piqa" / "valid-labels.lst").write_text("0\n1\n0\n1\n")
    (root / "humaneval").mkdir()
    test = "def check(candidate):\n    assert candidate() == 1\n"
    row = {"prompt": "def f():\n", "entry_point": "f", "test": test}
    (root / "humaneval" / "HumanEval.jsonl").write_text(2 * (json.dumps(row) + "\n"))
    return root


@pytest.fixture
def evaluate(model, data, capsys):
    def run(*flags):
        code = cli.main(["eval", "--model", model, "--data", str(data), *flags])
        return code, *capsys.readouterr()

    return run


def test_figures(evaluate):
    code, out, _ = evaluate(
        "piqa", "humaneval", "--json", "--method", "early-exit", "--exit-layer", "1",
        "--max-new-bytes", "8", "--batch", "2",
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    assert told["piqa"]["examples"] == 4 and told["piqa"]["accuracy"]["value"] == 0.5
    assert told["piqa"]["chance"] == 0.5
    assert told["humaneval"]["pass_at_1"] == 0 and sum(told["humaneval"]["ended"].values()) == 2
    assert told["humaneval"]["stats"]["drafted"] > 0


def test_the_table(evaluate):
    code, out, _ = evaluate("piqa", "--limit", "2")
    assert code == 0 and "piqa" in out and "50.0 %" in out


def test_an_interrupted_run_goes_on(evaluate, tmp_path, monkeypatch):
    kept = str(tmp_path / "kept.jsonl")
    whole = evaluate("piqa", "--json", "--out", kept)[1]
    lines = (tmp_path / "kept.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 4
    (tmp_path / "kept.jsonl").write_text("".join(lines[:3]) + lines[3][:9])  # cut within a line
    asked = []
    log_probs = multiple_choice.log_probs
    monkeypatch.setattr(
        multiple_choice, "log_probs", lambda *args: asked.append(args) or log_probs(*args)
    )
    assert evaluate("piqa", "--json", "--out", kept)[1] == whole
    assert len(asked) == 2
    assert (tmp_path / "kept.jsonl").read_text() == "".join(lines)
    code, _, err = evaluate("piqa", "--limit", "1", "--out", kept)
    assert code == 2 and "another model, method or data" in err


def test_a_file_without_answers_is_begun_anew(evaluate, tmp_path):
    kept = tmp_path / "kept.jsonl"
    assert evaluate("piqa", "--model", "misspelt", "--out", str(kept))[0] == 2
    code, *_ = evaluate("piqa", "--limit", "1", "--out", str(kept))
    assert code == 0 and len(kept.read_text().splitlines()) == 1 + 1


@pytest.mark.parametrize(
    "content", [b"notes", b"# Notes\n\nof mine\n", b"\xff\n", b'{"a": 1}\n[]\n']
)
def test_a_file_of_something_else_is_left_alone(evaluate, tmp_path, content):
    (tmp_path / "notes").write_bytes(content)
    code, out, err = evaluate("piqa", "--out", str(tmp_path / "notes"))
    assert code == 2 and not out and "something other than answers" in err
    assert len(err.splitlines()) == 1 and (tmp_path / "notes").read_bytes() == content


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["nope"], "unknown task 'nope'"),
        (["piqa=/nowhere"], "/nowhere"),
        (["piqa", "--limit", "0"], "limit must be at least 1"),
        (["piqa", "--method", "nope"], "unknown method"),
        (["humaneval", "--draft-length", "x", "--method", "lookup"], "--draft-length takes"),
        (["humaneval", "--shots", "1"], "no solved examples"),
        (["piqa", "humaneval", "--draft-length", "2"], "'ar' takes no 'draft_length'"),
        (["piqa", "humaneval", "--temperature", "-1"], "temperature must be"),
        (["piqa", "humaneval", "--method", "early-exit", "--exit-layer", "9"], "early exit lies"),
        (["piqa", "--seed", "-1"], "seed must be at least 0"),
        (["humaneval", "--max-new-bytes", "5000"], "leave no room for a prompt"),
        ([], "no tasks to score"),
    ],
)
def test_bad_input_is_one_line(evaluate, flags, says):
    code, out, err = evaluate(*flags)
    assert code == 2 and not out and says in err and len(err.splitlines()) == 1


def test_what_does_not_fit_loses_its_beginning(model, tmp_path, capsys):
    rows = [{"goal": goal, "sol1": "pull", "sol2": "push"} for goal in ("Open it", "Open " * 300)]
    (tmp_path / "valid.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (tmp_path / "valid-labels.lst").write_text("0\n0\n")
    assert cli.main(["eval", f"piqa={tmp_path}", "--model", model, "--json"]) == 0
    out, err = capsys.readouterr()
    (told,) = json.loads(out).values()
    assert told["examples"] == 2 and "1 of 2 examples do not fit" in err
