"""Multiple choice: layouts of the data sets, and known accuracies."""

import json

import models_for_tests as models
import pytest

from bytelax.measure import files, multiple_choice
from bytelax.measure.multiple_choice import Question


def test_whole_and_by_bytes():
    questions = [Question(b"?", (b" a", b" aaaa"), 1), Question(b"?", (b" b", b" c", b" d"), 0)]
    found = multiple_choice.accuracy(questions, [(-2.0, -3.0), (-1.0, -2.0, -3.0)])
    assert found.likeliest.value == 0.5 and found.normalised.value == 1.0
    assert found.chance == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found.questions == 2


def test_intervals():
    assert multiple_choice.share([True] * 50) == (1.0, 1.0, 1.0)
    value, low, high = multiple_choice.share([True, False] * 50)
    assert (value, low, high) == pytest.approx((0.5, 0.4, 0.6), abs=0.011)
    assert multiple_choice.share([True, False] * 5000)[1] > 0.49


def test_the_model_answers():
    model = models.chain(b" abcdefgh")
    question = Question(b"x:", (b" cb", b" ab", b" b"), 1)
    scores = multiple_choice.log_probs(model, question)
    assert multiple_choice.accuracy([question], [scores]).likeliest.value == 1.0


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_piqa(tmp_path):
    write(tmp_path / "valid.jsonl", {"goal": "Open it", "sol1": "pull", "sol2": "push"})
    (tmp_path / "valid-labels.lst").write_text("1\n")
    expected = Question(b"Question: Open it\nAnswer:", (b" pull", b" push"), 1)
    assert multiple_choice.piqa(tmp_path) == [expected]


def test_both_layouts_of_arc(tmp_path):
    texts, labels = ["red", "blue", "green"], ["1", "2", "3"]
    choices = [{"text": t, "label": label} for t, label in zip(texts, labels, strict=True)]
    own = {"id": "x", "question": {"stem": "Sky?", "choices": choices}, "answerKey": "2"}
    hub = {"question": "Sky?", "choices": {"text": texts, "label": labels}, "answerKey": "2"}
    expected = Question(b"Question: Sky?\nAnswer:", (b" red", b" blue", b" green"), 1)
    found = multiple_choice.arc(write(tmp_path / "arc.jsonl", own, hub))
    assert found == [expected, expected]


def test_hellaswag(tmp_path):
    row = {
        "activity_label": "Baking", "ctx_a": "[header] How to bake [title] Mix it.", "ctx_b": "he",
        "endings": ["stirs [substeps] it.", "does that."],
    }  # fmt: skip
    rows = [row | {"label": label} for label in (1, "0")]
    first, second = multiple_choice.hellaswag(write(tmp_path / "h.jsonl", *rows))
    context = b"Baking: How to bake. Mix it. He"
    assert first == Question(context, (b" stirs it.", b" does that."), 1)
    assert second.answer == 0


def test_mmlu_behind_solved_questions(tmp_path):
    row = {"subject": "high_school_art", "question": "Q?", "choices": ["w", "x", "y", "z"]}
    solved = [row | {"question": f"S{i}?", "answer": i} for i in range(3)]
    write(tmp_path / "mmlu_dev.jsonl", *solved, row | {"subject": "other", "answer": 0})
    write(tmp_path / "mmlu_test.jsonl", row | {"answer": 3})
    (question,) = multiple_choice.mmlu(tmp_path, shots=2)
    assert question.context.decode() == (
        "The following are multiple choice questions (with answers) about high school art.\n\n"
        "S0?\nA. w\nB. x\nC. y\nD. z\nAnswer: A\n\nS1?\nA. w\nB. x\nC. y\nD. z\nAnswer: B\n\n"
        "Q?\nA. w\nB. x\nC. y\nD. z\nAnswer:"
    )
    assert question.choices == (b" A", b" B", b" C", b" D") and question.answer == 3
    assert b"S0" not in multiple_choice.mmlu(tmp_path, shots=0)[0].context
    with pytest.raises(ValueError, match="high_school_art has 3 solved questions, not 4"):
        multiple_choice.mmlu(tmp_path, shots=4)


def test_files(tmp_path):
    import gzip

    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress('{"a": "x\u2028y"}\r\n'.encode()))
    assert files.records(tmp_path / "a.jsonl") == [{"a": "x\u2028y"}]
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n[2]\n')
    with pytest.raises(ValueError, match=r"b\.jsonl:2: the line is no JSON object"):
        files.records(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b"{}\n" * 99)[:-9])
    (tmp_path / "d.jsonl").write_bytes(b"\xff")
    for name in ("c.jsonl.gz", "d.jsonl"):
        with pytest.raises(ValueError, match=name):
            files.records(tmp_path / name)
    assert files.spread(range(10), 3) == (0, 3, 6) and files.spread("ab", 5) == ("a", "b")
