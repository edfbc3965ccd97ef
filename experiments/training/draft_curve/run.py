"""What an EAGLE layer keeps by how much text it learned from, beside other drafters of `tiny-lm`.

    python -m experiments.training.draft_curve.train layer-1 --data DIR --runs RUNS   and the others
    python -m experiments.training.draft_curve.run --data DIR --runs RUNS

64 held-out prompts of five genres, at temperature 0 and 1. The falsifier that was set beforehand, a
draft layer that keeps six bytes of twelve, is judged on the most text.
"""

import pathlib

from bytelax import load
from bytelax.measure.timing import Contestant
from experiments.harness import evidence, intervals, recipes, side_by_side, study
from experiments.training.draft_curve.train import MEGABYTES, SEEDS

TEMPERATURES = (0.0, 1.0)
SMALL = "small-3"
LAYERS = tuple(name for name in MEGABYTES if name.startswith("layer"))
BESIDE = (
    ("heads-3", "early-exit", {"exit_layer": 6, "draft_length": 4}),
    ("heads-3", "medusa", {}),
    ("heads-3", "two-byte", {"state_layer": 12}),
    (SMALL, "draft-model", {"draft_length": 4}),
    (SMALL, "draft-model", {"draft_length": 12}),
)


def settings(runs: pathlib.Path) -> list[dict]:
    """A training run, a method that drafts with what it learned, and a temperature."""
    ways = [(run, "eagle", {"draft_length": length}) for run in LAYERS for length in (4, 12)]
    return [
        {"run": run, "method": method, "temperature": temperature, **options}
        for first, method, options in (*ways, *BESIDE)
        for run in (first, *SEEDS.get(first, ()))
        if (runs / run / ("model" if first == SMALL else "heads")).exists()
        for temperature in TEMPERATURES
    ]


def main():
    options = study.parser(__doc__, __file__, model="tiny-lm")
    options.add_argument("--runs", type=pathlib.Path, required=True, help="what train.py made")
    evidence.add_options(options, new=128, timed=False)
    options = evidence.parsed(options)
    texts = evidence.prompts(options)
    asked = settings(options.runs)
    trained = {run: recipes.trained_on(options.runs / run) for run in {s["run"] for s in asked}}
    study.run(
        options.results / "results.json",
        {"model": options.model, **evidence.measured_on(options, texts)},
        [each | {"trained": trained[each["run"]]} for each in asked][
            : 2 if options.smoke else None
        ],
        lambda setting: measure(setting, [text for _, text in texts], options),
        markdown=markdown,
        timed=False,
    )


def measure(setting: dict, texts: list[bytes], options) -> dict:
    own = {"run", "method", "temperature", "trained"}
    chosen = {name: value for name, value in setting.items() if name not in own}
    folder = options.runs / setting["run"]
    if setting["run"].startswith(SMALL):
        model = load(options.model, dtype="float32")
        chosen["draft_model"] = load(folder, dtype="float32")
    else:
        model = load(options.model, dtype="float32", heads=folder / "heads")
    results = evidence.decoded(
        model, texts, Contestant(setting["method"], chosen), new=options.new,
        temperature=setting["temperature"],
    )  # fmt: skip
    return evidence.figures(results)


def markdown(report):
    header = (
        "drafter", "setting", "MB", "seed", "T", "bytes per round", "without loops", "loops",
        "kept per round, without loops", "acceptance, %",
    )  # fmt: skip
    rows = []
    for row in report["rows"]:
        chosen = dict(row["setting"])
        _, _, seed = chosen.pop("run").partition("-seed")
        method, temperature, trained = map(chosen.pop, ("method", "temperature", "trained"))
        rows.append((
            method, side_by_side.named(chosen), f"{trained['bytes'] / 1e6:.1f}",
            seed or "0", f"{temperature:g}", intervals.shown(row["bytes_per_round"]),
            intervals.shown(row["bytes_per_round_without_loops"]),
            f"{row['loops']}/{report['prompts']}",
            intervals.shown(row["kept_per_round_without_loops"]),
            intervals.shown(row["acceptance"], ".1f", times=100),
        ))  # fmt: skip
    return "\n".join([
        "# A draft layer by the text that it learned from", "",
        *evidence.warning(report),
        f"`{report['model']}`, which stays as it is; {evidence.conditions(report)} The same "
        "optimizer and schedule for all. Heads of 3 MB share one run, and a draft model "
        "learns from `tiny-lm` as a teacher.", "",
        *evidence.LEGEND, "",
        *study.table(header, rows), "",
        falsifier(report), "",
    ])  # fmt: skip


def falsifier(report) -> str:
    """The verdict: a layer keeps six bytes of a draft of twelve, or it does not."""
    own = [
        row
        for row in report["rows"]
        if row["setting"]["run"] in LAYERS and row["setting"]["draft_length"] == 12
    ]
    if not own:
        return "The falsifier was not judged: no draft layer was trained."
    most = max(row["setting"]["trained"]["bytes"] for row in own)
    last = [row for row in own if row["setting"]["trained"]["bytes"] == most]
    kept = " and ".join(f"{row['kept_per_round_without_loops']['value']:.1f}" for row in last)
    fires = max(row["kept_per_round_without_loops"]["value"] for row in last) < 6
    verdict = "The falsifier fires" if fires else "The falsifier does not fire"
    return (
        f"{verdict}: after {most / 1e6:.1f} MB the layer keeps {kept} bytes of twelve at T = 0 and "
        "1, without loops, where six were asked."
    )


if __name__ == "__main__":
    main()
