"""Prompts by kind: text that the models were trained on, two held-out splits, other sources."""

import gzip
import json
import pathlib

from experiments.harness import bundled_data

SEEN, HELD_OUT, OTHER = "seen", "held out", "other source"
TEST = "held out, test files"  # nothing was ever chosen by what they gave
KINDS = (SEEN, HELD_OUT, TEST, OTHER)


def prompts(data: str, count: int, length: int) -> dict[str, list[tuple[str, bytes]]]:
    """For each kind genre and text of `count` prompts, shared out over the genres of the kind.

    Args:
      data: directory of the data sets.
      count: number of prompts of a kind.
      length: bytes of a prompt.
    """
    valid, test = (bundled_data.held_out(data, None, split) for split in bundled_data.SPLITS)
    texts = {SEEN: seen(data), HELD_OUT: valid, TEST: test, OTHER: other(data)}
    return {kind: bundled_data.spread(texts[kind], count, length) for kind in KINDS}


def seen(data: str) -> dict[str, bytes]:
    """Genre to text of the files that the models were trained on: the first one of each source."""
    root = pathlib.Path(data)

    def corpus(name):
        return "\n".join(_lines(root / name / "train-00.txt.gz")).encode()

    def pairs(name, short):
        lines = _lines(root / f"tatoeba_{name}_eng" / "train.tsv.gz")
        return bundled_data.sentences(short, (line.split("\t") for line in lines))

    return {
        "prose, textbooks": corpus("openstax_ccby"),
        "prose, novels": corpus("eltec_eng"),
        "code": corpus("code_stdlib"),
        "sentences, German and English": pairs("deu", "de"),
        "sentences, French and English": pairs("fra", "fr"),
    }


def other(data: str) -> dict[str, bytes]:
    """Genre to text of sources that no model has read: plays, programs and translations."""
    root = pathlib.Path(data)

    def pairs(name, short):
        sides = (_lines(root / f"flores200/dev/{each}_Latn.dev") for each in (name, "eng"))
        return bundled_data.sentences(short, zip(*sides, strict=True))

    programs = map(json.loads, _lines(root / "humaneval/HumanEval.jsonl.gz"))
    return {
        "prose, plays": (root / "tinyshakespeare/input.txt").read_bytes(),
        "code": "\n".join(row["prompt"] for row in programs).encode(),
        "sentences, German and English": pairs("deu", "de"),
        "sentences, French and English": pairs("fra", "fr"),
    }


def _lines(path: pathlib.Path) -> list[str]:
    """The lines of a text, gzipped or not; `splitlines` would also split within a sentence."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return text.removesuffix("\n").split("\n")
