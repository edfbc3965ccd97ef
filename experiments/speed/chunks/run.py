"""How often the global transformer runs for a window, by rows of a batch and patches of a run.

    python -m experiments.speed.chunks.run --data DIR

Patches that close in a window go through the global transformer in chunks, and the row that closes
the most decides how many there are. Larger chunks compute more padding and read the weights less
often, which is what an accelerator waits for. Nothing is timed: the runs are counted, of BLT-S and
BLT-DV with the bundled models on held-out prompts of five genres.
"""

import dataclasses
import functools

from bytelax import load, methods
from bytelax.measure.timing import Contestant
from experiments.harness import evidence, study

MINUTES = 10
METHODS = {
    "blt-s": ("tiny", {"draft_length": 8}),
    "blt-dv": ("tiny-d", {"block_size": 8}),
}
BATCHES, CHUNKS = (1, 8, 16, 64), (4, 6, 9)


def main():
    options = study.parser(__doc__, __file__, model=None)
    evidence.add_options(options, new=48)
    options = evidence.parsed(options)
    texts = evidence.prompts(options)
    temperatures, batches = ((1.0,), (1,)) if options.smoke else ((0.0, 1.0), BATCHES)
    study.run(
        options.results / "results.json",
        evidence.measured_on(options, texts),
        [
            {"method": method, "temperature": temperature, "batch": batch}
            for method in METHODS
            for temperature in temperatures
            for batch in batches
        ],
        lambda setting: measure(setting, [text for _, text in texts], options.new),
        markdown=markdown,
    )


loaded = functools.cache(functools.partial(load, dtype="float32"))


def measure(setting, texts, new):
    """Runs of the global transformer a window, by patches of a run."""
    name, chosen = METHODS[setting["method"]]
    model, batch = loaded(name), setting["batch"]
    built, _ = methods.build(setting["method"], model, **chosen)
    runs = {}
    for chunk in CHUNKS:
        target = dataclasses.replace(built.target, chunk=chunk)
        own = Contestant(dataclasses.replace(built, target=target), {})
        found = evidence.decoded(
            model, texts, own, new=new, temperature=setting["temperature"], batch=batch
        )
        rows = [result.stats for result in found]
        runs[str(chunk)] = evidence.ratio(rows, "global_chunks", "batch_windows")["value"]
    return {"runs_per_window": runs}


def markdown(report):
    header = ("method", "temperature", "rows", *(f"{chunk} patches a run" for chunk in CHUNKS))
    rows = [
        (
            row["setting"]["method"],
            f"{row['setting']['temperature']:g}",
            row["setting"]["batch"],
            *(f"{row['runs_per_window'][str(chunk)]:.2f}" for chunk in CHUNKS),
        )
        for row in report["rows"]
    ]
    return "\n".join(
        [
            "# Runs of the global transformer a window",
            "",
            *evidence.warning(report),
            f"Windows of 9 bytes, of all rows of a batch. {evidence.conditions(report)}",
            "",
            *study.table(header, rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
