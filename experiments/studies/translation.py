"""What fewer passes cost in translation, in models that learned nothing else.

A BLT that translates German and French into English was trained on by our loss of BLT-D, and
plainly as its control, each for as many bytes. BLEU and chrF of greedy translations of sentences of
Tatoeba that no model was trained on, by sacrebleu with all references, and the passes and gigabytes
of weights that a sentence takes. Models that are not trained yet are left out.

    pip install -e .[studies]
    python -m experiments.recipes.translation blt --data DIR --runs RUNS    and the others
    python -m experiments.studies.translation --data DIR --runs RUNS
"""

import importlib.util
import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence

from bytelax import load
from experiments import study
from experiments.harness import trained
from experiments.study import Column

NEW = 128  # bytes; the longest reference has fewer
RESAMPLES = 1000  # of sentences, for the intervals
LANGUAGES = {"deu": "de", "fra": "fr"}  # corpus to what its lines begin with
BASE, CONTROL = "blt", "blt-more"
MODELS = dict(zip((BASE, CONTROL, "blt-d-paper", "blt-d"), trained.LABELS, strict=True))
METRICS = {"bleu": "BLEU", "chrf": "chrF"}
COLUMNS = [
    Column("model", "label"),
    Column("method", "method"),
    Column("options", "options"),
    *(Column(f"{title}, {language}", f"{name}.{language}", ".1f")
      for name, title in METRICS.items() for language in LANGUAGES.values()),
    Column("acceptance", "acceptance", ".1%"),
    Column("published", "published_acceptance"),
    Column("decoder passes", "decoder_passes", ".1f"),
    Column("global passes", "global_passes", ".1f"),
    Column("GB", "bandwidth_gb_with_patcher", ".4f"),
    Column("weights read, beside plain", "weights_read", ".2f"),
    Column("without the entropy model", "weights_by_formula", ".2f"),
    Column("published", "published_weights"),
]  # fmt: skip


def settings(runs: pathlib.Path) -> Iterator[dict]:
    """The models that are there, each with its methods."""
    for name in MODELS:
        if model := trained.model_of(runs / name):
            own = {"model": name, "trained": trained.digest(model)}
            yield from (own | way for way in trained.ways(MODELS[name]))


def read(data: str, count: int) -> list[dict]:
    """Sentences of the test files, `count` of each language, with their references.

    The files are sorted by length; the sentences are evenly spread over them.
    """
    examples = []
    for corpus, language in LANGUAGES.items():
        lines = pathlib.Path(data, f"tatoeba_{corpus}_eng/test.{corpus}2eng.jsonl").read_text()
        rows = [json.loads(line) for line in lines.splitlines()]
        for index in range(min(count, len(rows))):
            row = rows[index * len(rows) // min(count, len(rows))]
            examples.append({"language": language, "source": row["src"], "right": row["refs"]})
    return examples


def prompt(example: dict) -> str:
    """As a training text begins."""
    return f"{example['language']}: {example['source']}\nen:"


def measure(setting: dict, examples: list[dict], runs: pathlib.Path, *, batch: int) -> dict:
    """Translates all sentences, `batch` at a time."""
    model = load(trained.model_of(runs / setting["model"]), dtype="float32")
    prompts = [prompt(each) for each in examples]
    results, figures = trained.answers(model, prompts, setting, new=NEW, batch=batch)
    written = [result.bytes.decode(errors="replace").strip() for result in results]
    return {"label": MODELS[setting["model"]]} | scores(written, examples) | figures


class _Floats:
    """A metric whose scores are floats: sacrebleu fails to average zeros with NumPy's float32."""

    def _compute_score_from_stats(self, stats):
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


def scores(written: Sequence[str], examples: Sequence[dict]) -> dict[str, dict]:
    """BLEU and chrF by language, with intervals, by sacrebleu."""
    from sacrebleu.metrics import BLEU, CHRF

    kinds = (type(kind.__name__, (_Floats, kind), {}) for kind in (BLEU, CHRF))
    metrics = {name: kind() for name, kind in zip(METRICS, kinds, strict=True)}
    found: dict[str, dict] = {name: {} for name in metrics}
    for language in LANGUAGES.values():
        own = [place for place, each in enumerate(examples) if each["language"] == language]
        # A stream has a reference of each sentence; None is for those that have no more.
        streams = list(itertools.zip_longest(*(examples[place]["right"] for place in own)))
        for name, metric in metrics.items():
            score = metric.corpus_score([written[place] for place in own], streams, RESAMPLES)
            signature = str(metric.get_signature())
            fields = json.loads(score.format(width=4, signature=signature, is_json=True))
            mean, half = (fields.get(f"confidence_{each}", 0.0) for each in ("mean", "var"))
            found[name][language] = {
                "value": score.score, "interval": [mean - half, mean + half]
            }  # fmt: skip
    return found


def main():
    parser = study.parser(__doc__)
    parser.add_argument("--runs", type=study.directory, required=True, help="of the recipes")
    parser.add_argument("--sentences", type=int, default=500, help="of each language")
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    if importlib.util.find_spec("sacrebleu") is None:
        parser.error("sacrebleu is not installed: pip install -e .[studies]")
    runs = pathlib.Path(options.runs)
    asked = list(settings(runs))
    if options.smoke:
        options.sentences, asked = 2, asked[:2]
    examples = read(options.data, options.sentences)
    study.run(
        "translation", options, asked,
        lambda setting: measure(setting, examples, runs, batch=options.batch),
        conditions={"sentences": len(examples)}, timed=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
