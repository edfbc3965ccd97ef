"""What a draft model gains on `small-lm`, a byte transformer that no processor's cache holds.

`small-lm` has 32M parameters, 127 MB in float32 and 64 in bfloat16, so that a pass over nine bytes
costs far less than nine passes. `small-draft` drafts for it, in int8 if the row says so: each round
reads its weights from memory again. `tiny-draft` was slower at equal length in every row, and is
not run any more. An exit at half the depth has no trained head here; it is counted, not timed. Times
are of one row, without the prompt; counts of all prompts.

    python -m experiments.studies.small_lm --data DIR
"""

from experiments import evidence, study
from experiments.evidence import COUNTED, DTYPES, SETTING, TEMPERATURES, TIMED_COLUMNS
from experiments.study import Column

MODEL, SMALL = "small-lm", "small-draft"
LENGTHS = (4, 8)
EXIT = {"exit_layer": 5, "exit_head": False, "draft_length": 1}
OWN = [column for column in COUNTED if column.key != "published_acceptance"]
COLUMNS = [
    *SETTING,
    Column("dtype", "dtype"),
    Column("draft model in", "draft_quantize"),
    *OWN,
    *TIMED_COLUMNS,
]


def main():
    options = evidence.parsed(evidence.parser(__doc__, new=128))
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
    settings += [
        {"model": MODEL, "method": "early-exit", "temperature": temperature, "options": EXIT}
        for temperature in TEMPERATURES
    ]

    def measure(setting):
        timed = setting["method"] != "early-exit"
        return evidence.drafted(setting, texts, options, timed=timed)

    study.run("small_lm", options, settings, measure, conditions=evidence.conditions(options))


if __name__ == "__main__":
    main()
