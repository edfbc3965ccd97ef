"""How many bytes a drafter of `tiny-lm` keeps, by the text that it was trained on.

An EAGLE layer on more and more text, beside heads and a draft model on as many bytes as one of
them, with the same optimizer; `tiny-lm` stays as it is. The goal set for EAGLE is six bytes kept of
a draft of twelve. Models that are not trained yet are left out.

    python -m experiments.recipes.draft_curve layer-1 --data DIR --runs RUNS    and the others
    python -m experiments.studies.draft_curve --data DIR --runs RUNS
"""

import pathlib

from bytelax import load
from bytelax.measure.timing import Contestant
from experiments import evidence, study
from experiments.harness import recipes
from experiments.recipes.draft_curve import MEGABYTES, SEEDS
from experiments.study import Column

SMALL = "small-3"
WAYS = (
    *((run, "eagle", {"draft_length": length})
      for run in MEGABYTES if run.startswith("layer") for length in (4, 12)),
    ("heads-3", "early-exit", {"exit_layer": 6, "draft_length": 4}),
    ("heads-3", "medusa", {}),
    ("heads-3", "two-byte", {"state_layer": 12}),
    (SMALL, "draft-model", {"draft_length": 4}),
    (SMALL, "draft-model", {"draft_length": 12}),
)  # fmt: skip
COLUMNS = [
    Column("run", "run"),
    Column("bytes of training", "trained_bytes", ",d"),
    Column("method", "method"),
    Column("options", "options"),
    Column("T", "temperature", "g"),
    *evidence.COUNTED[:4],
    Column("kept per round, without loops", "kept_per_round_without_loops", ".2f"),
]


def main():
    options = evidence.parser(__doc__, new=128, timed=False)
    options.add_argument("--runs", type=study.directory, required=True, help="of the recipes")
    options = evidence.parsed(options)
    runs, texts = pathlib.Path(options.runs), evidence.prompts(options)
    settings = [
        {
            "model": "tiny-lm", "run": run, "method": method, "options": chosen,
            "temperature": temperature,
            "trained_bytes": recipes.trained_on(runs / run)["bytes"],
        }
        for first, method, chosen in WAYS
        for run in (first, *SEEDS.get(first, ()))
        if (runs / run / ("model" if first == SMALL else "heads")).exists()
        for temperature in evidence.TEMPERATURES
    ]  # fmt: skip

    def measure(setting):
        heads, chosen = None, dict(setting["options"])
        if setting["method"] == "draft-model":
            chosen["draft_model"] = load(runs / setting["run"], dtype="float32")
        else:
            heads = runs / setting["run"] / "heads"
        model = load("tiny-lm", dtype="float32", heads=heads)
        own = Contestant(setting["method"], chosen)
        return evidence.drafted(setting, texts, options, model=model, own=own, timed=False)

    study.run(
        "draft_curve", options, settings[: 2 if options.smoke else None], measure,
        conditions=evidence.conditions(options), timed=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
