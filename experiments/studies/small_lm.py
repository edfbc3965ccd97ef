"""What a draft model gains on `small-lm`, a byte transformer that no processor's cache holds.

`small-lm` has 32M parameters, 127 MB in float32 and 64 in bfloat16, so that a pass over nine bytes
costs far less than nine passes. `small-draft` drafts for it, in int8 if the row says so: each round
reads its weights from memory again. `tiny-draft` was slower at equal length in every row, and is
not run any more. Times are of one row, without the prompt; counts of all prompts. What the model
drafts for itself is only counted: by an exit at half its depth, untrained, and, with `--runs`, by
heads of the recipe `small-lm-heads`.

    python -m experiments.studies.small_lm --data DIR [--runs RUNS]
"""

import functools
import pathlib

from bytelax import load
from bytelax.measure.timing import Contestant
from experiments import evidence, study
from experiments.evidence import COUNTED, DTYPES, SETTING, TEMPERATURES, TIMED_COLUMNS
from experiments.harness import trained
from experiments.study import Column

MODEL, SMALL = "small-lm", "small-draft"
LENGTHS = (4, 8)
EXIT = {"exit_layer": 5, "draft_length": 1}
UNTRAINED = (("early-exit", EXIT | {"exit_head": False}),)
TRAINED = (
    ("early-exit", EXIT),
    ("two-byte", {"state_layer": 10}),
    ("two-byte", {"state_layer": 5}),
)
OWN = [column for column in COUNTED if column.key != "published_acceptance"]
COLUMNS = [
    *SETTING,
    Column("dtype", "dtype"),
    Column("draft model in", "draft_quantize"),
    *OWN,
    *TIMED_COLUMNS,
]


def main():
    options = evidence.parser(__doc__, new=128)
    options.add_argument("--runs", type=study.directory, help="of heads, as `small-lm-heads`")
    options = evidence.parsed(options)
    texts = evidence.prompts(options)
    settings = [
        {
            "model": MODEL, "method": "draft-model", "dtype": dtype, "temperature": temperature,
            "options": {"draft_model": SMALL, "draft_length": length}, "draft_quantize": "int8",
        }
        for dtype in DTYPES
        for temperature in TEMPERATURES
        for length in LENGTHS
    ]  # fmt: skip
    if options.smoke:
        settings = settings[-1:]
    heads = options.runs and pathlib.Path(options.runs) / "small-lm-heads" / "heads"
    drafts = [({}, *each) for each in UNTRAINED]
    if heads:
        drafts += [({"trained": trained.digest(heads)}, *each) for each in TRAINED]
    settings += [
        {"model": MODEL, **own, "method": method, "options": chosen, "temperature": temperature}
        for own, method, chosen in drafts
        for temperature in TEMPERATURES
    ]

    @functools.cache
    def model(with_heads):
        return load(MODEL, dtype="float32", heads=heads if with_heads else None)

    def measure(setting):
        if setting["method"] == "draft-model":
            return evidence.drafted(setting, texts, options)
        own, prompts = model("trained" in setting), tuple(text for _, text in texts)
        how = {"new": options.new, "temperature": setting["temperature"]}
        found = evidence.decoded(
            own, prompts, Contestant(setting["method"], setting["options"]), **how
        )
        return evidence.counts(setting, found, evidence.plainly(own, prompts, **how))

    study.run("small_lm", options, settings, measure, conditions=evidence.conditions(options))


if __name__ == "__main__":
    main()
