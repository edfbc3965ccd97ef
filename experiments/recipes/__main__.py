"""Trains a model of the package or of a study as it was trained: a file of this folder, a run.

    python -m experiments.recipes STAGE --data DIR --runs RUNS [--seed N] [flags of bytelax train]

STAGE.toml is the config of `bytelax train`; $TEXTS are the corpora of docs/data.md in DIR, $LINES
the files that `rule_tasks_data` wrote there, $RUNS is RUNS. The run is RUNS/STAGE, with a seed
RUNS/STAGE-N. The same command goes on where it stopped. `task-scratch-d4` and `-d8` are BLT-Ds as
Fast BLT trains them, from scratch with one block size and t from 0: otherwise they are `task`.
`late-patch3` and `late-patch1.7` are `late` with shorter patches, of so many bytes.
"""

import argparse
import json
import pathlib
import string
import sys
import tomllib

from bytelax import cli
from bytelax.training.configs import Source
from experiments.harness import bundled_data

FOLDER = pathlib.Path(__file__).parent
# Stages that differ from a file in a few lines: the file, and what takes the place of these lines.
# Thresholds in nats, by `bytelax calibrate` on prose and code, which finds 2.488 for 4.5 bytes.
VARIANTS = {
    f"task-scratch-d{size}": ("task", {
        'kind = "blt"': 'kind = "blt-d"',
        "[objective]\n":
            f"[objective]\ncorruption = {{block_sizes = [{size}], smallest_t = 0.0}}\n",
    })
    for size in (4, 8)
} | {
    f"late-patch{length}": ("late", {
        "threshold = 2.4749": f"threshold = {threshold}",
        "max_patches = 160": f"max_patches = {room}",
    })
    for length, threshold, room in (("3", 1.9374, 240), ("1.7", 1.2834, 400))
}  # fmt: skip
STAGES = sorted([*(path.stem for path in FOLDER.glob("*.toml")), *VARIANTS])
OFTEN = {"validation-batches": 16, "validate-every": 200, "save-every": 200, "log-every": 20}


def config(stage: str, data: str, runs: pathlib.Path) -> str:
    """The config of a stage, with the places of its text and of earlier runs."""
    lines = Source(f"{data}/train.txt", valid=f"{data}/valid.txt", separator=r"\n")
    file, changes = VARIANTS.get(stage, (stage, {}))
    text = (FOLDER / f"{file}.toml").read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, f"{file}.toml has no line {old}"
        text = text.replace(old, new)
    template = string.Template(text)
    sources = {"LINES": [lines]}
    if "TEXTS" in template.get_identifiers():
        sources["TEXTS"] = [*bundled_data.sources(data, runs)]
    return template.substitute(
        {name: json.dumps([*map(str, each)]) for name, each in sources.items()}, RUNS=runs
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="Further flags go to bytelax train."
    )
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--data", required=True, help="directory of the text")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--seed", type=int, help="of the data and of the parameters")
    options, flags = parser.parse_known_args()
    name = options.stage
    if options.seed is not None:
        name = f"{name}-{options.seed}"
        flags = ["--data.seed", str(options.seed), "--run.seed", str(options.seed), *flags]
    text = config(options.stage, options.data, options.runs)
    options.runs.mkdir(parents=True, exist_ok=True)
    file = options.runs / f"{name}.toml"
    file.write_text(text)
    often = [word for key, value in OFTEN.items() for word in (f"--run.{key}", str(value))]
    run = ["--config", str(file), "--out", str(options.runs / name)]
    return cli.main(["train", tomllib.loads(text)["kind"], *run, *often, *flags])


if __name__ == "__main__":
    sys.exit(main())
