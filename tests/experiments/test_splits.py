"""Prompts of the test files, by which nothing is chosen, beside those of the validation files."""

import gzip

import pytest

from experiments import evidence
from experiments.harness import bundled_data
from tests.helpers import score_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Validation files and test files say what they are."""
    root = tmp_path_factory.mktemp("data")
    score_data.write(root)
    for split in bundled_data.SPLITS:
        for name in ("openstax_ccby", "eltec_eng", "code_stdlib"):
            lines = f"{split} \n".encode() * 200
            (root / name / f"{split}.txt.gz").write_bytes(gzip.compress(lines))
        for name in ("deu", "fra"):
            (root / f"tatoeba_{name}_eng" / f"{split}.tsv").write_text(f"{split}\t{split}\n" * 99)
    return str(root)


@pytest.mark.parametrize("split", bundled_data.SPLITS)
def test_prompts_are_of_the_split(data, split, monkeypatch):
    monkeypatch.setattr("sys.argv", ["study", "--data", data, "--split", split, "--prompts", "10"])
    options = evidence.parsed(evidence.parser("A study.", new=8))
    options.context = 24
    found = evidence.prompts(options)
    assert len(found) == 10 and all(split.encode() in text for _, text in found)
    (other,) = {*bundled_data.SPLITS} - {split}
    assert not any(other.encode() in text for _, text in found)
    # A study measures again what it has of another split.
    assert evidence.conditions(options)["split"] == split
