"""Translation into English, scored by sacrebleu against one or several references."""

import importlib.util
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bytelax.measure import files
from bytelax.measure.prompted import Example, Prompted

_SHORT = {"deu": "de", "fra": "fr", "eng": "en"}


class Sentence(NamedTuple):
    """A sentence and its reference translations."""

    source: str
    references: tuple[str, ...]


def tatoeba(folder: Path, language: str, split: str) -> list[Sentence]:
    """Reads Tatoeba from `SPLIT.LANGUAGE2eng.jsonl`: one source and its references per line."""
    rows = files.records(folder / f"{split}.{language}2eng.jsonl")
    return [Sentence(row["src"], tuple(row["refs"])) for row in rows]


def flores(folder: Path, language: str, split: str) -> list[Sentence]:
    """Reads FLORES in its released layout, from the lines of `SPLIT/LANGUAGE_Latn.SPLIT`."""
    sides = [files.lines(folder / split / f"{name}_Latn.{split}") for name in (language, "eng")]
    return [Sentence(source, (target,)) for source, target in zip(*sides, strict=True)]


def task(
    sentences: Sequence[Sentence], examples: Sequence[Sentence], language: str, *, new: int
) -> Prompted:
    """Builds a translation task: sentences to translate after some solved examples.

    Fast BLT uses four examples and does not give their format. Here each example is two lines, `de:
    ...` and `en: ...`, as in the training text of the bundled models.

    Args:
      sentences: sentences to translate.
      examples: solved examples in each prompt; none makes it zero-shot.
      language: source language, for example "deu".
      new: maximum number of bytes of an answer, which is one line.
    """
    own, english = _SHORT[language], _SHORT["eng"]
    shots = "".join(f"{own}: {s.source}\n{english}: {s.references[0]}\n" for s in examples)
    return Prompted(
        tuple(
            Example(f"{shots}{own}: {s.source}\n{english}:".encode(), s.references)
            for s in sentences
        ),
        stop=(b"\n",),
        new=new,
        score=score,
    )


def score(answers: Sequence[bytes], references: Sequence[Sequence[str]]) -> dict:
    """Returns BLEU, spBLEU and chrF of the whole corpus.

    spBLEU uses the sentencepiece model of FLORES-200. It is None unless `sentencepiece` and that
    model are installed (`sacrebleu --tokenize flores200` downloads it).

    Raises:
      ValueError: sacrebleu is not installed.
    """
    needs_sacrebleu()
    from sacrebleu.metrics import BLEU, CHRF

    said = [answer.decode("utf-8", "replace").strip() for answer in answers]
    # One stream of first references, one of second ones, and so on; None where there are fewer.
    streams = list(map(list, itertools.zip_longest(*references)))
    pieces = BLEU(tokenize="flores200") if _has_pieces() else None
    return {
        "bleu": BLEU().corpus_score(said, streams).score,
        "spbleu": None if pieces is None else pieces.corpus_score(said, streams).score,
        "chrf": CHRF().corpus_score(said, streams).score,
    }


def needs_sacrebleu() -> None:
    """Raises ValueError if sacrebleu is not installed."""
    if importlib.util.find_spec("sacrebleu") is None:
        raise ValueError("scoring translations needs sacrebleu: pip install 'bytelax[eval]'")


def _has_pieces() -> bool:
    """Whether sacrebleu can compute spBLEU without downloading anything."""
    from sacrebleu.utils import SACREBLEU_DIR

    model = Path(SACREBLEU_DIR) / "models" / "flores200sacrebleuspm"
    return importlib.util.find_spec("sentencepiece") is not None and model.exists()
