"""What the bundled models score in lm-evaluation-harness, on local files.

PIQA by likelihood, and German sentences of Tatoeba, translated by several methods after four solved
ones: the harness's figures with its standard errors, and what an answer takes.

    pip install -e .[eval]
    python -m experiments.studies.lm_eval --data DIR
"""

import json
import os
import pathlib
import tempfile

from bytelax import Statistics, load
from bytelax.measure.harness import HarnessModel
from experiments import study
from experiments.study import Column

SETTINGS = [
    {"task": task, "model": model, "method": method, "options": options}
    for task, model, method, options in (
        *(("piqa", model, "ar", {}) for model in ("tiny", "tiny-d", "tiny-lm")),
        ("translation", "tiny", "ar", {}),
        ("translation", "tiny", "blt-s", {}),
        ("translation", "tiny-d", "ar", {}),
        ("translation", "tiny-d", "blt-dv", {}),
        ("translation", "tiny-d", "blt-d", {"unmask": "one-step"}),
    )
]
COLUMNS = [
    Column("task", "task"), Column("model", "model"), Column("method", "method"),
    Column("options", "options"), Column("examples", "examples"),
    Column("acc", "acc", ".1%"), Column("acc_norm", "acc_norm", ".1%"),
    Column("BLEU", "bleu", ".1f"), Column("chrF", "chrf", ".1f"),
    Column("bytes", "bytes", ".1f"), Column("rounds", "rounds", ".1f"),
]  # fmt: skip
SHOTS, NEW = 4, 96  # solved sentences, and bytes of an answer


def local(name: str, files: dict[str, pathlib.Path], **how) -> dict:
    """A task of the harness with data in JSON lines."""
    data = {"data_files": {split: str(path) for split, path in files.items()}}
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": data,
        "test_split": "test",
    } | how


def piqa(data: pathlib.Path, folder: pathlib.Path) -> dict:
    """PIQA, whose questions and answers lie in two files; they are joined in `folder`."""
    rows = (data / "piqa" / "valid.jsonl").read_text().splitlines()
    labels = (data / "piqa" / "valid-labels.lst").read_text().split()
    joined = folder / "piqa.jsonl"
    pairs = zip(rows, labels, strict=True)
    joined.write_text("\n".join(json.dumps(json.loads(a) | {"label": int(b)}) for a, b in pairs))
    return local(
        "piqa", {"test": joined},
        output_type="multiple_choice", doc_to_text="Question: {{goal}}\nAnswer:",
        doc_to_choice="{{[sol1, sol2]}}", doc_to_target="label",
    )  # fmt: skip


def translation(data: pathlib.Path) -> dict:
    """German sentences, as the models read them in training; of several references the first."""
    folder = data / "tatoeba_deu_eng"
    return local(
        "translation",
        {"test": folder / "test.deu2eng.jsonl", "valid": folder / "valid.deu2eng.jsonl"},
        fewshot_split="valid", num_fewshot=SHOTS, fewshot_config={"sampler": "first_n"},
        fewshot_delimiter="\n",
        output_type="generate_until", doc_to_text="de: {{src}}\nen:", doc_to_target="{{refs[0]}}",
        generation_kwargs={"until": ["\n"], "max_gen_toks": NEW},
        metric_list=[
            {"metric": name, "aggregation": name, "higher_is_better": True}
            for name in ("bleu", "chrf")
        ],
    )  # fmt: skip


def measure(setting: dict, task: dict, options) -> dict:
    """The harness's figures, and the means of what an answer takes if it was generated."""
    import lm_eval

    how = {"method": setting["method"], **setting["options"]}
    model = HarnessModel(load(setting["model"], dtype="float32"), batch=options.batch, **how)
    limit = options.sentences if setting["task"] == "translation" else options.questions
    found = lm_eval.simple_evaluate(model, tasks=[task], limit=limit, bootstrap_iters=100)
    figures = found["results"][setting["task"]]
    row = {"examples": figures["sample_len"]}
    for name in ("acc", "acc_norm", "bleu", "chrf"):
        if f"{name},none" in figures:
            value, error = figures[f"{name},none"], figures[f"{name}_stderr,none"]
            row[name] = {"value": value, "interval": [value - 1.96 * error, value + 1.96 * error]}
    if model.stats:
        total = Statistics.total(model.stats)
        row |= {name: getattr(total, name) / len(model.stats) for name in ("bytes", "rounds")}
    return row


def main():
    options = study.parser(__doc__)
    options.add_argument("--questions", type=int, default=500, help="of PIQA")
    options.add_argument("--sentences", type=int, default=100, help="of Tatoeba")
    options.add_argument("--batch", type=int, default=16)
    options = options.parse_args()
    if options.smoke:
        options.questions = options.sentences = 2
    os.environ["DISABLE_MULTIPROC"] = "1"  # the harness would fork a process that runs JAX
    data = pathlib.Path(options.data)
    with tempfile.TemporaryDirectory() as folder:
        tasks = {"piqa": piqa(data, pathlib.Path(folder)), "translation": translation(data)}
        study.run(
            "lm_eval", options, SETTINGS[2:5:2] if options.smoke else SETTINGS,
            lambda setting: measure(setting, tasks[setting["task"]], options),
            conditions={"batch": options.batch},
        )  # fmt: skip


if __name__ == "__main__":
    main()
