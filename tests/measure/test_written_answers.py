"""Answers that a model writes: prompts as published, known scores."""

import json

import pytest

from bytelax.measure import code, sandbox, tasks, translation
from bytelax.measure.translation import Sentence

PROBLEM = {
    "prompt": "def double(x):\n", "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(3) == 6\n",
}  # fmt: skip


def mbpp_rows():
    return [
        {
            "task_id": number, "text": f"Write f{number}.", "code": f"def f{number}(): return 1",
            "test_setup_code": "ONE = 1" if number == 11 else "",
            "test_list": [f"assert f{number}() == 1", "assert True"],
        }
        for number in (1, 2, 3, 4, 11, 511)
    ]  # fmt: skip


@pytest.fixture
def scored():
    pytest.importorskip("sacrebleu")
    return translation.score


def test_any_of_several_references(scored):
    references = [("I want to go home now.",), ("It is your turn now.", "Now it is your turn.")]
    right = scored([b" I want to go home now.", b" Now it is your turn.\n"], references)
    assert right["bleu"] == pytest.approx(100) and right["chrf"] == pytest.approx(100)
    wrong = scored([b"nothing", b"of it"], references)
    assert wrong["bleu"] < 5 and wrong["chrf"] < 20
    assert scored([b"\xff I want", b""], references)["bleu"] < 50


def test_a_known_bleu(scored):
    """Precisions of 5/6, 3/5, 1/4 and 0/3 smoothed to 1/6; no brevity penalty."""
    found = scored([b"the cat is on the mat"], [("the cat sat on the mat",)])
    assert found["bleu"] == pytest.approx(100 * (5 / 6 * 3 / 5 * 1 / 4 * 1 / 6) ** 0.25, abs=0.01)


def test_prompts_of_translations():
    task = translation.task(
        [Sentence("Guten Tag.", ("Hello.",))], [Sentence("Ja.", ("Yes.", "Yeah."))], "deu", new=9
    )
    assert task.examples[0].prompt == b"de: Ja.\nen: Yes.\nde: Guten Tag.\nen:"
    assert task.answer(b" Hello.\nde: Und") == b" Hello." and task.answer(b"no end") == b"no end"


def test_sentences_line_by_line(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "fra_Latn.dev").write_text("Un.\nDeux\u2028mots.\n")
    (tmp_path / "dev" / "eng_Latn.dev").write_text("One.\nTwo words.\n")
    second = translation.flores(tmp_path, "fra", "dev")[1]
    assert second == Sentence("Deux\u2028mots.", ("Two words.",))


def test_humaneval(tmp_path):
    file = tmp_path / "HumanEval.jsonl"
    file.write_text(json.dumps(PROBLEM) + "\n")
    task = tasks.read("humaneval", file)
    assert task.examples[0].prompt == b"def double(x):\n"
    right = b"    return 2 * x\n\ndef another():\n    while True: pass\n"
    assert task.answer(right) == b"    return 2 * x\n"
    assert task.scored([right]) == {"pass_at_1": 1.0, "ended": {"passed": 1}}
    assert task.scored([b"    return x\n"])["ended"] == {"AssertionError": 1}
    assert task.scored([b"    raise SystemExit\n"])["pass_at_1"] == 0
    assert task.scored([b"    \xff\n"])["ended"] == {"SyntaxError": 1}
    assert task.scored([b"    import os; os.remove('x')\n"])["ended"] == {"forbidden": 1}
    endless = code.score(
        [b"    while True: pass\n"], [task.examples[0].truth], limits=sandbox.Limits(seconds=1.0)
    )
    assert endless == {"pass_at_1": 0.0, "ended": {"time": 1}}


@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_what_cannot_be_confined_is_told_before_programs_are_written(name, tmp_path, monkeypatch):
    def cannot():
        raise OSError("no filters here")

    monkeypatch.setattr(sandbox, "check", cannot)
    with pytest.raises(OSError, match="no filters here"):
        tasks.read(name, tmp_path)


def test_mbpp(tmp_path):
    file = tmp_path / "mbpp.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in mbpp_rows()))
    task = tasks.read("mbpp", file)
    assert len(task.examples) == 1  # 11 to 510 are the test
    prompt = task.examples[0].prompt.decode()
    assert prompt.count("You are an expert Python programmer") == 4
    assert "here is your task: Write f2." in prompt and "Write f1." not in prompt
    assert "[BEGIN]\ndef f4(): return 1\n[DONE]\n" in prompt
    assert prompt.endswith("\n\nassert f11() == 1\nassert True\n[BEGIN]\n")
    answers = [b"def f11(): return ONE\n[DONE]\nimport os\nos.fork()"]
    assert task.scored(answers)["pass_at_1"] == 1
    assert task.scored([b"def f11(): return 2"])["pass_at_1"] == 0


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("nope", "", "unknown task 'nope'"),
        ("humaneval", '{"a": 1}', "not in the layout of humaneval"),
        ("arc-easy", "{", "invalid JSON"),
    ],
)
def test_bad_data_is_told(tmp_path, name, content, says):
    file = tmp_path / "data.jsonl"
    file.write_text(content)
    with pytest.raises(ValueError, match=says):
        tasks.read(name, file)


def test_shots_that_there_are_not(tmp_path):
    for name in ("humaneval", "piqa", "arc-easy"):
        with pytest.raises(ValueError, match=f"{name}: .* no solved examples"):
            tasks.read(name, tmp_path, shots=1)
    file = tmp_path / "mbpp.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in mbpp_rows()))
    with pytest.raises(ValueError, match="9 solved examples, not 10"):  # the next one is a test
        tasks.read("mbpp", file, shots=10)


def test_no_examples(tmp_path):
    file = tmp_path / "mbpp.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in mbpp_rows()[:4]))
    with pytest.raises(ValueError, match="no examples of mbpp"):
        tasks.read("mbpp", file)


def test_sacrebleu_is_asked_for_before_anything_is_translated(tmp_path, monkeypatch):
    monkeypatch.setattr(translation.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs sacrebleu"):
        tasks.read("tatoeba-deu-eng", tmp_path)


def test_a_line_nested_too_deeply(tmp_path):
    file = tmp_path / "HumanEval.jsonl"
    file.write_text('{"prompt": ' + "[" * 100_000 + "\n")
    with pytest.raises(ValueError, match=r"HumanEval.jsonl:1: invalid JSON: .*recursion"):
        tasks.read("humaneval", file)
