"""What fewer passes cost in translation, in models that learned nothing else.

    pip install -e .[report]
    python -m experiments.training.translation.train blt --data DIR --runs RUNS    and the others
    python -m experiments.quality.translation.run --data DIR --runs RUNS

A BLT that translates German and French into English was trained on by the published loss of BLT-D,
by ours, and plainly as their control, each for as many bytes. BLEU and chrF of greedy translations
of sentences of Tatoeba that no model was trained on, against the passes and the weights that a
sentence takes, beside the tables of Fast BLT (arXiv 2605.08044). Models that are not trained yet
are left out; rows of models that are no longer here stay, and a model that was trained on is
measured anew.
"""

import importlib.util
import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bytelax import load
from experiments.harness import intervals, published_fast_blt, side_by_side, study, trained

NEW = 128  # bytes; the longest reference has fewer
RESAMPLES = 1000  # of sentences, for the intervals
LANGUAGES = {"deu": "de", "fra": "fr"}  # corpus to what its lines begin with
BASE, CONTROL = "blt", "blt-more"
MODELS = dict(zip((BASE, CONTROL, "blt-d-paper", "blt-d"), trained.LABELS, strict=True))
RULES = [
    {"unmask": "one-step"},
    {"unmask": "confidence", "alpha": 0.9},
    {"unmask": "entropy", "gamma": 0.1},
    trained.ONE_BYTE,
]
METRICS = {"bleu": "BLEU", "chrf": "chrF"}


def settings(weights: dict[str, str]) -> Iterator[dict]:
    """A model with a method and its options.

    Args:
      weights: digests of the models that are there, by the names of their runs.
    """
    for name in filter(weights.get, MODELS):
        own = {"model": name, "weights": weights[name]}
        yield from (own | way for way in trained.ways(MODELS[name], RULES))


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
    how = {name: value for name, value in setting.items() if name not in ("model", "weights")}
    model = load(trained.model_of(runs / setting["model"]), dtype="float32")
    results, figures = trained.answers(
        model, [prompt(each) for each in examples], how, new=NEW, batch=batch
    )
    said = [result.bytes.decode(errors="replace").strip() for result in results]
    return scores(said, examples) | figures


class _Floats:
    """A metric whose scores are floats: sacrebleu fails to average zeros with NumPy's float32."""

    def _compute_score_from_stats(self, stats):
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


def scores(said: Sequence[str], examples: Sequence[dict]) -> dict[str, dict]:
    """BLEU and chrF by language, with intervals and signatures, by sacrebleu."""
    from sacrebleu.metrics import BLEU, CHRF

    kinds = (type(kind.__name__, (_Floats, kind), {}) for kind in (BLEU, CHRF))
    metrics = {name: kind() for name, kind in zip(METRICS, kinds, strict=True)}
    found: dict[str, dict] = {name: {} for name in metrics}
    for language in LANGUAGES.values():
        own = [place for place, each in enumerate(examples) if each["language"] == language]
        # A stream has a reference of each sentence; None is for those that have no more.
        streams = list(itertools.zip_longest(*(examples[place]["right"] for place in own)))
        for name, metric in metrics.items():
            score = metric.corpus_score([said[place] for place in own], streams, RESAMPLES)
            signature = str(metric.get_signature())
            told = json.loads(score.format(width=4, signature=signature, is_json=True))
            mean, half = (told.get(f"confidence_{each}", 0.0) for each in ("mean", "var"))
            found[name][language] = {
                "value": score.score, "interval": [mean - half, mean + half],
                "signature": signature,
            }  # fmt: skip
    return found


def main():
    parser = study.parser(__doc__, __file__, model=None)
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="what train.py made")
    parser.add_argument("--sentences", type=int, default=500, help="of each language")
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    if importlib.util.find_spec("sacrebleu") is None:
        parser.error("sacrebleu is not installed: pip install -e .[report]")
    results = options.results / "results.json"
    before = json.loads(results.read_text())["rows"] if results.exists() else []
    measured = {row["setting"]["model"]: row["setting"]["weights"] for row in before}
    asked = list(settings(trained.digests(options.runs, MODELS, measured)))
    if options.smoke:
        options.sentences, asked = 2, asked[:2]
    examples = read(options.data, options.sentences)
    study.run(
        results,
        {"sentences": len(examples), "batch": options.batch, "temperature": 0.0},
        asked,
        lambda setting: measure(setting, examples, options.runs, batch=options.batch),
        markdown=markdown,
        timed=False,
    )


def plain(report: dict, row: dict) -> dict | None:
    """The row of plain decoding beside which one stands: of the control, or of the base itself."""
    model = BASE if row["setting"]["model"] == BASE else CONTROL
    own = {"model": model, "method": "ar"}
    return next((each for each in report["rows"] if own.items() <= each["setting"].items()), None)


def bleu(row: dict) -> float:
    """The mean over languages."""
    return float(np.mean([each["value"] for each in row["bleu"].values()]))


def line(report: dict, row: dict) -> tuple:
    setting, beside = row["setting"], plain(report, row)
    how = {k: v for k, v in setting.items() if k not in ("model", "weights", "method")}
    # No published row fills one byte per pass.
    one_byte = trained.ONE_BYTE.items() <= setting.items()
    published = {} if one_byte else published_fast_blt.translation(setting["method"], how)

    def share(figure):
        return f"{100 * figure(row) / figure(beside):.0f}" if beside and figure(beside) else None

    return (
        MODELS[setting["model"]],
        ", ".join(filter(None, (setting["method"], side_by_side.named(how)))),
        *(intervals.shown(each, ".1f") for name in METRICS for each in row[name].values()),
        share(bleu), published.get("score"),
        # What is not verified is kept.
        None if setting["method"] in ("ar", "blt-d")
        else intervals.shown(row["acceptance"], ".1f", times=100),
        published.get("acceptance"),
        *(f"{row[name]:.1f}" for name in ("decoder_passes", "global_passes")),
        f"{row['bandwidth_gb_with_patcher']:.4f}",
        share(lambda row: row["bandwidth_gb_with_patcher"]), published.get("gigabytes"),
    )  # fmt: skip


def markdown(report):
    languages = LANGUAGES.values()
    signed = [
        f"{label}: `{each['signature']}`."
        for row in report["rows"]
        for name, label in METRICS.items()
        for each in row[name].values()
    ]
    return "\n".join([
        "# Translation against passes", "",
        f"Greedy translations of {report['sentences']} held-out sentences of Tatoeba into English, "
        f"{report['batch']} at a time, {study.machine(report)}. Nothing is timed: models this "
        "small tell nothing of times.", "",
        "- BLEU and chrF by sacrebleu, with all references. In brackets: 95 % intervals from "
        f"{RESAMPLES} resamples of sentences; of acceptance, from {intervals.RESAMPLES}.",
        *(f"- {signature}" for signature in dict.fromkeys(signed)),
        "- Beside plain: the mean BLEU of both languages, and the gigabytes of weights read, by "
        "those of plain decoding of the control; for the base, of itself.",
        "- Passes and gigabytes of weights read: means of a sentence, with its end. With gamma 0 a "
        "pass fills one byte, the most certain one.",
        published_fast_blt.TRANSLATION_LEGEND, "",
        *study.table(
            ("model", "method", *(
                f"{label}, {each}" for label in METRICS.values() for each in languages),
             "BLEU beside plain, %", "published",
             "acceptance, %", "published", "decoder passes", "global passes", "GB",
             "GB beside plain, %", "published"),
            [line(report, row) for row in report["rows"]],
        ), "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
