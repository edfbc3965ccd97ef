"""The text of the bundled models by genre, under a directory of the corpora in docs/data.md."""

import gzip
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from bytelax.training.configs import Source

BLANK_LINES = r"\n{3,}"
FILE_HEADER = r"\n*^# file: .*\n"
# Thresholds, checkpoints and shapes are chosen by the text of the first; nothing by the second.
SPLITS = VALID, TEST = "valid", "test"


def sources(data: str, runs: pathlib.Path) -> tuple[Source, ...]:
    """English prose, Python and sentence pairs: 45 %, 30 % and 25 % of the windows."""
    pairs = [
        of_pairs(f"{data}/tatoeba_{corpus}_eng", template, runs, weight=1.25 / 2)
        for corpus, short in (("deu", "de"), ("fra", "fr"))
        for template in (f"{short}: {{0}}\nen: {{1}}\n", f"en: {{1}}\n{short}: {{0}}\n")
    ]
    return (
        _texts(data, "openstax_ccby", 3.0, BLANK_LINES),
        _texts(data, "eltec_eng", 1.5, BLANK_LINES),
        _texts(data, "code_stdlib", 1.6, FILE_HEADER),
        _texts(data, "code_networkx", 0.7, FILE_HEADER),
        _texts(data, "code_thealgorithms", 0.7, FILE_HEADER),
        *pairs,
    )


def of_pairs(folder: str, template: str, runs: pathlib.Path, weight: float = 1.0) -> Source:
    """Sentence pairs as documents, which are written into the directory of the runs."""
    runs.mkdir(parents=True, exist_ok=True)
    written = {}
    for split in ("train", "valid"):
        table = pathlib.Path(folder) / ("train.tsv.gz" if split == "train" else "valid.tsv")
        content = table.read_bytes()
        content = gzip.decompress(content) if split == "train" else content
        rows = content.decode().splitlines()
        documents = (template.format(*row.split("\t")) for row in rows)
        path = runs / f"{table.parent.name}-{template[:2]}-{split}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        written[split] = str(path)
    return Source(written["train"], weight=weight, valid=written["valid"])


def held_out(data, most, split=VALID):
    """Genre to text, as the models were trained on it.

    Args:
      data: directory of the corpora.
      most: bytes of a genre; None takes all.
      split: one of `SPLITS`.
    """

    def pairs(name, short):
        lines = pathlib.Path(f"{data}/tatoeba_{name}_eng/{split}.tsv").read_text().splitlines()
        return sentences(short, (line.split("\t") for line in lines))

    def corpus(name):
        return gzip.decompress(pathlib.Path(f"{data}/{name}/{split}.txt.gz").read_bytes())

    texts = {
        "prose, textbooks": corpus("openstax_ccby"),
        "prose, novels": corpus("eltec_eng"),
        "code": corpus("code_stdlib"),
        "sentences, German and English": pairs("deu", "de"),
        "sentences, French and English": pairs("fra", "fr"),
    }
    return {name: text[:most] for name, text in texts.items()}


def sentences(short: str, pairs: Iterable[Sequence[str]]) -> bytes:
    """Pairs of a foreign sentence and its English one, as the models were trained on them."""
    return "".join(f"{short}: {foreign}\nen: {own}\n" for foreign, own, *_ in pairs).encode()


def prompts(data: str, count: int, length: int, split: str = VALID) -> list[tuple[str, bytes]]:
    """Genre and text of `count` stretches of held-out text; `data` is the corpora's directory."""
    return spread(held_out(data, None, split), count, length)


def spread(texts: Mapping[str, bytes], count: int, length: int) -> list[tuple[str, bytes]]:
    """Genre and text of stretches from line beginnings, evenly spread.

    Args:
      texts: genre to text.
      count: number of stretches, shared out over the genres.
      length: bytes of a stretch.
    """
    found = []
    for place, (genre, text) in enumerate(texts.items()):
        number = len(range(place, count, len(texts)))
        for index in range(number):
            start = int(index * (len(text) - 2 * length) / max(number, 1))
            line = text.find(b"\n", start, start + length) + 1
            begin = line or start
            found.append((genre, text[begin : begin + length]))
    return found


def _texts(data, name, weight, separator):
    return Source(
        f"{data}/{name}/train-*.txt.gz",
        weight=weight,
        valid=f"{data}/{name}/valid.txt.gz",
        separator=separator,
    )
