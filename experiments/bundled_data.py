"""The text of the bundled models by genre, under a directory of the corpora in docs/data.md."""

from bytelax.training.documents import Source

BLANK_LINES = r"\n{3,}"
FILE_HEADER = r"\n*^# file: .*\n"


def sources(data: str) -> tuple[Source, ...]:
    """English prose, Python and sentence pairs: 45 %, 30 % and 25 % of the windows."""
    pairs = [
        Source(
            f"{data}/tatoeba_{corpus}_eng/train.tsv.gz",
            weight=1.25 / 2,
            valid=f"{data}/tatoeba_{corpus}_eng/valid.tsv",
            template=template,
        )
        for corpus, short in (("deu", "de"), ("fra", "fr"))
        for template in (
            rf"{short}: {{0}}\nen: {{1}}\n",
            rf"en: {{1}}\n{short}: {{0}}\n",
        )
    ]
    return (
        _texts(data, "openstax_ccby", 3.0, BLANK_LINES),
        _texts(data, "eltec_eng", 1.5, BLANK_LINES),
        _texts(data, "code_stdlib", 1.6, FILE_HEADER),
        _texts(data, "code_networkx", 0.7, FILE_HEADER),
        _texts(data, "code_thealgorithms", 0.7, FILE_HEADER),
        *pairs,
    )


def _texts(data, name, weight, separator):
    return Source(
        f"{data}/{name}/train-*.txt.gz",
        weight=weight,
        valid=f"{data}/{name}/valid.txt.gz",
        separator=separator,
    )
