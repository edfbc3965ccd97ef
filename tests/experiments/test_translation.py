"""The study of translation: what it asks for and how it scores, on sentences made up here."""

import pathlib

import pytest

import bytelax
from experiments.harness import published_fast_blt, trained
from experiments.quality.translation import run as translation
from experiments.training.translation import train
from tests.helpers import score_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    score_data.write(root)
    return str(root)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_translation(smoke, tmp_path):
    """With a bundled model, drafted and plain."""
    pytest.importorskip("sacrebleu")
    (tmp_path / "runs").mkdir()
    assets = pathlib.Path(bytelax.__file__).parent / "assets"
    (tmp_path / "runs" / "blt").symlink_to(assets / "tiny")
    report, table = smoke("quality/translation", "--runs", str(tmp_path / "runs"))
    plain, drafted = report["rows"]
    assert (plain["bleu"], plain["chrf"]) == (drafted["bleu"], drafted["chrf"])
    assert drafted["rounds"] < plain["rounds"] == pytest.approx(plain["bytes"], abs=1)
    assert "| the base | blt-s, draft_length 4 |" in table and "- BLEU: `nrefs:2|" in table


def test_the_study_looks_for_the_runs_of_the_recipes():
    assert list(translation.MODELS) == ["blt", *train.CONTINUED]
    assert trained.BLOCK_SIZES == train.BLOCK_SIZES
    assert translation.LANGUAGES == train.LANGUAGES


def test_only_models_that_are_there_are_asked():
    made = list(translation.settings({"blt": "digest", "blt-d": "digest"}))
    assert len(made) == (1 + 3) + (1 + 3 * (len(translation.RULES) + 1))
    assert {each["model"] for each in made} == {"blt", "blt-d"}


def test_a_prompt_is_the_beginning_of_a_training_text(data):
    german, french = (source.template.replace(r"\n", "\n") for source in train.pairs(data))
    examples = translation.read(data, 3)
    for example in examples:
        template = german if example["language"] == "de" else french
        text = template.format(example["source"], example["right"][0])
        assert text == f"{translation.prompt(example)} {example['right'][0]}\n"
    assert [each["source"][9:11] for each in examples] == 2 * ["0 ", "10", "20"]


def test_scores_are_of_each_sentence_beside_its_own_references(data):
    pytest.importorskip("sacrebleu")
    examples = translation.read(data, 8)
    examples[0]["right"].pop()  # sentences have different numbers of references
    for place in (0, -1):
        own = translation.scores([each["right"][place] for each in examples], examples)
        found = [figure["value"] for each in own.values() for figure in each.values()]
        assert found == 4 * [pytest.approx(100)]
        assert own["bleu"]["de"]["signature"].startswith("nrefs:var|bs:1000|")
    right = [each["right"] for each in examples]
    moved = [
        each | {"right": other} for each, other in zip(examples, right[1:] + right[:1], strict=True)
    ]
    wrong = translation.scores([each[0] for each in right], moved)
    for figure in (*wrong["bleu"].values(), *wrong["chrf"].values()):
        low, high = figure["interval"]
        assert low <= high < 90 and figure["value"] < 90


@pytest.mark.parametrize("right", [0, 1])
def test_scores_of_translations_that_have_nothing_right(data, right):
    """Or a single one: a resample without it scores 0."""
    pytest.importorskip("sacrebleu")
    examples = translation.read(data, 3)
    said = ["" for _ in examples]
    said[:right] = [each["right"][0] for each in examples[:right]]
    found = translation.scores(said, examples)
    assert (found["chrf"]["de"]["interval"][1] > 0) == bool(right)
    assert found["bleu"]["fr"]["interval"] == found["chrf"]["fr"]["interval"] == [0, 0]


def test_a_row_stands_beside_plain_decoding_of_its_own_training():
    def row(model, score, **how):
        scores = {language: {"value": score, "interval": [0, 1]} for language in ("de", "fr")}
        setting = {"model": model, "weights": "digest", "method": "ar", **how}
        return {
            "setting": setting, "bleu": scores, "chrf": scores, "decoder_passes": 1,
            "global_passes": 1, "bandwidth_gb_with_patcher": score, "acceptance": None,
        }  # fmt: skip

    base, control = row("blt", 8.0), row("blt-more", 10.0)
    drafted = row("blt", 8.0, method="blt-s", draft_length=8)
    filled = row("blt-d", 7.0, method="blt-d", block_size=4, **translation.RULES[1])
    one_byte = row("blt-d", 7.0, method="blt-d", block_size=4, **trained.ONE_BYTE)

    def shown(*rows):
        report = {"rows": list(rows)}
        return [translation.line(report, each)[6:8] for each in rows]

    assert shown(base, control, drafted, filled, one_byte) == [
        ("100", None), ("100", None), ("100", "100 to 100"), ("70", "87 to 94"), ("70", None),
    ]  # fmt: skip
    assert shown(filled) == [(None, "87 to 94")]


def test_published_figures_of_translation():
    """Without those of programs, of which more is accepted."""
    options = {"draft_length": 8}
    assert published_fast_blt.translation("blt-s", options) == {
        "score": "100 to 100", "acceptance": "86 to 91", "gigabytes": "48 to 62",
    }  # fmt: skip
    assert published_fast_blt.shown("blt-s", options) == "86 to 96"


def test_without_sacrebleu_one_line_says_what_to_install(monkeypatch, data, tmp_path, capsys):
    monkeypatch.setattr(translation.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("sys.argv", ["run.py", "--data", data, "--runs", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        translation.main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.endswith("sacrebleu is not installed: pip install -e .[report]\n")
    assert told.count("\n") == 1
