"""What the bundled models score in lm-evaluation-harness, on local files.

    pip install -e .[eval]
    python -m experiments.quality.lm_eval.run --data DIR

PIQA by likelihood, and sentences of Tatoeba translated by several methods behind four solved ones:
the harness's figures, and what an answer takes. Needs the extra `eval`, so the report does not run
it.
"""

import json
import os
import pathlib
import tempfile

from bytelax import Statistics, load
from bytelax.measure.harness import HarnessModel
from experiments.harness import study

SETTINGS = [
    *({"task": "piqa", "model": model, "method": "ar"} for model in ("tiny", "tiny-d", "tiny-lm")),
    {"task": "translation", "model": "tiny", "method": "ar"},
    {"task": "translation", "model": "tiny", "method": "blt-s"},
    {"task": "translation", "model": "tiny-d", "method": "ar"},
    {"task": "translation", "model": "tiny-d", "method": "blt-dv"},
    {"task": "translation", "model": "tiny-d", "method": "blt-d", "unmask": "one-step"},
]
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

    how = {name: value for name, value in setting.items() if name not in ("task", "model")}
    model = HarnessModel(load(setting["model"], dtype="float32"), batch=options.batch, **how)
    limit = options.sentences if setting["task"] == "translation" else options.questions
    found = lm_eval.simple_evaluate(model, tasks=[task], limit=limit, bootstrap_iters=100)
    figures = found["results"][setting["task"]]
    told = {
        name: {"value": figures[f"{name},none"], "stderr": figures[f"{name}_stderr,none"]}
        for name in ("acc", "acc_norm", "bleu", "chrf")
        if f"{name},none" in figures
    }
    if model.stats:
        total = Statistics.total(model.stats)
        told |= {name: getattr(total, name) / len(model.stats) for name in ("bytes", "rounds")}
    return {"examples": figures["sample_len"], **told}


def main():
    options = study.parser(__doc__, __file__, model=None)
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
            options.results / "results.json",
            {name: getattr(options, name) for name in ("questions", "sentences", "batch")},
            SETTINGS[2:5:2] if options.smoke else SETTINGS,
            lambda setting: measure(setting, tasks[setting["task"]], options),
            markdown=markdown,
        )


def markdown(report):
    questions, answers = [], []
    for row in report["rows"]:
        setting = row["setting"]
        if setting["task"] == "piqa":
            shares = (_shown(row[name], 100) for name in ("acc", "acc_norm"))
            questions.append((f"`{setting['model']}`", row["examples"], *shares))
        else:
            method = " ".join(filter(None, (f"`{setting['method']}`", setting.get("unmask"))))
            scores = (_shown(row[name]) for name in ("bleu", "chrf"))
            taken = (f"{row[name]:.1f}" for name in ("bytes", "rounds"))
            answers.append((f"`{setting['model']}`", method, *scores, *taken))
    return "\n".join([
        "# The bundled models in lm-evaluation-harness", "",
        f"Local files, {report['batch']} texts together, {study.machine(report)}. ±: 1.96 standard "
        "errors of the harness.", "",
        "## PIQA", "",
        "Accuracy of the likeliest answer, and of the likeliest per character; a guess is right in "
        "50 %.", "",
        *study.table(("model", "questions", "acc, %", "acc_norm, %"), questions), "",
        "## German sentences of Tatoeba into English", "",
        f"{report['sentences']} sentences behind {SHOTS} solved ones, greedy, up to {NEW} bytes; "
        "bytes and rounds are means of an answer.", "",
        *study.table(("model", "method", "BLEU", "chrF", "bytes", "rounds"), answers), "",
    ])  # fmt: skip


def _shown(figure, times=1):
    return f"{times * figure['value']:.1f} ± {times * 1.96 * figure['stderr']:.1f}"


if __name__ == "__main__":
    main()
