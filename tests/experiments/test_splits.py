"""Prompts of the test files, by which nothing is chosen, beside those of the validation files."""

import argparse
import gzip

import pytest

from experiments.harness import bundled_data, evidence
from experiments.quality.acceptance import texts
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
def test_prompts_are_of_the_split_that_was_asked_for(data, split):
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=data)
    evidence.add_options(parser, new=8)
    options = parser.parse_args(["--split", split, "--prompts", "10", "--context", "24"])
    found = evidence.prompts(options)
    assert len(found) == 10 and all(split.encode() in text for _, text in found)
    (other,) = {*bundled_data.SPLITS} - {split}
    assert not any(other.encode() in text for _, text in found)
    # A study measures anew what it has of another split.
    assert evidence.measured_on(options, found)["split"] == split


def test_acceptance_has_both_apart(data):
    kinds = texts.prompts(data, 10, 24)
    assert all(b"valid" in text for _, text in kinds[texts.HELD_OUT])
    assert all(b"test" in text for _, text in kinds[texts.TEST])
