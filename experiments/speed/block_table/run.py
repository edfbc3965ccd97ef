"""What a block table adds to BLT-DV in one step, in bytes per round.

    python -m experiments.training.drafters.train table --data DIR --runs RUNS --steps 400
    python -m experiments.speed.block_table.run --data DIR --table RUNS/table

64 held-out prompts of five genres, at temperature 0 and 1, blocks of 8; counted, not timed. Rows of
a table that the library no longer has stay.
"""

import json
import pathlib

from bytelax import load
from bytelax.measure.timing import Contestant
from experiments.harness import evidence, intervals, loops, recipes, study

TEMPERATURES, BLOCK = (0.0, 1.0), 8
NONE, PAIRS, STATE = "none", "pairs of bytes", "pairs of bytes, and the state"


def main():
    options = study.parser(__doc__, __file__)
    options.add_argument("--table", type=pathlib.Path, help="a run of a block table for --model")
    evidence.add_options(options, new=96, timed=False)
    options = evidence.parsed(options)
    path = options.results / "results.json"
    asked = [{"table": NONE, "trained": None}]
    if options.table:
        asked.append({"table": STATE, "trained": recipes.trained_on(options.table)})
    asked = [row | {"temperature": each} for each in TEMPERATURES for row in asked]
    before = json.loads(path.read_text())["rows"] if path.exists() else []  # also of a part
    known = [row["setting"] for row in before]
    settings = asked[:1] if options.smoke else asked + [row for row in known if row not in asked]
    texts = evidence.prompts(options)
    study.run(
        path,
        evidence.measured_on(options, texts) | {"model": options.model, "block": BLOCK},
        sorted(
            settings, key=lambda row: (row["temperature"], (NONE, PAIRS, STATE).index(row["table"]))
        ),
        lambda setting: measure(setting, [text for _, text in texts], options),
        markdown=markdown,
        timed=False,
    )


def measure(setting, texts, options):
    """Figures over prompts, and the rounds of each prompt."""
    if setting["table"] == PAIRS:
        raise ValueError(f"the library has no table of {PAIRS}: give other --results")
    tabled = setting["table"] != NONE
    heads = options.table / "heads" if tabled else None
    model = load(options.model, dtype="float32", heads=heads)
    contestant = Contestant("blt-dv", {"block_size": BLOCK, "table": tabled})
    results = evidence.decoded(
        model, texts, contestant, new=options.new, temperature=setting["temperature"]
    )
    return evidence.figures(results) | {
        "rounds": [result.stats.rounds for result in results],
        "looping": [loops.period(result.bytes) is not None for result in results],
    }


def times(report, row, table):
    """How many times the bytes per round of a table a row has, of prompts that loop in neither."""
    temperature = row["setting"]["temperature"]
    for other in report["rows"]:
        if other["setting"]["table"] == table and other["setting"]["temperature"] == temperature:
            both = zip(
                other["rounds"], row["rounds"], other["looping"], row["looping"], strict=True
            )
            rounds = [(a, b) for a, b, *looping in both if not any(looping)]
            return intervals.of_ratio(*zip(*rounds, strict=True))
    return None


def markdown(report):
    header = (
        "table", "T", "bytes per round", "without loops", "loops", "acceptance, %",
        f"times {NONE}", f"times {PAIRS}",
    )  # fmt: skip
    rows = [
        (
            row["setting"]["table"], f"{row['setting']['temperature']:g}",
            intervals.shown(row["bytes_per_round"]),
            intervals.shown(row["bytes_per_round_without_loops"]),
            f"{row['loops']}/{report['prompts']}",
            intervals.shown(row["acceptance"], ".1f", times=100),
            *(None if row["setting"]["table"] == other
              else intervals.shown(times(report, row, other)) for other in (NONE, PAIRS)),
        )
        for row in report["rows"]
    ]  # fmt: skip
    trained = [row["setting"] for row in report["rows"] if row["setting"]["trained"]]
    seen = {row["table"]: row["trained"]["bytes"] / 1e6 for row in trained}
    told = ", ".join(f"{size:.1f} MB for {name}" for name, size in seen.items()) or "nothing"
    return "\n".join(
        [
            "# Block tables",
            "",
            *evidence.warning(report),
            f"`{report['model']}` fills blocks of {report['block']} in one step (`blt-dv`). "
            f"{evidence.conditions(report)} Trained on: {told}.",
            "",
            *evidence.LEGEND,
            "- Times: the bytes per round beside those of another row at the same temperature, of "
            "the same prompts, without those that loop in either.",
            f"- {PAIRS.capitalize()}: commit 15e32bd has the code of a table that reads no state.",
            "",
            *study.table(header, rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
