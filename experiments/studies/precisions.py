"""What drafting gains on the bundled models in float32 and in bfloat16.

The drafters of each model that keep most for what they cost, beside plain decoding of the same
weights in the same precision.

    python -m experiments.studies.precisions --data DIR
"""

from experiments import evidence, study
from experiments.study import Column

METHODS = (
    ("tiny-lm", "medusa", {}),
    ("tiny-lm", "eagle", {"draft_length": 4}),
    ("tiny-lm", "eagle", {"draft_length": 8}),
    ("tiny-lm", "draft-model", {"draft_length": 4}),
    ("tiny", "blt-s", {"draft_length": 4}),
    ("tiny", "blt-s", {"draft_length": 8}),
    ("tiny", "blt-s", {"draft_length": 16, "latent": "predicted"}),
    ("tiny", "eagle", {"draft_length": 4}),
    ("tiny", "eagle", {"draft_length": 8}),
)
COLUMNS = [
    Column("weights", "dtype"),
    *evidence.SETTING,
    *evidence.COUNTED[:4],
    *evidence.TIMED_COLUMNS[:3],
]


def main():
    options = evidence.parsed(evidence.parser(__doc__, new=128))
    texts = evidence.prompts(options)
    settings = [
        {"model": model, "dtype": dtype, "method": method, "options": chosen,
         "temperature": temperature}
        for temperature in evidence.TEMPERATURES
        for model, method, chosen in METHODS
        for dtype in ("float32", "bfloat16")
    ]  # fmt: skip
    study.run(
        "precisions", options, settings[:1] if options.smoke else settings,
        lambda setting: evidence.drafted(setting, texts, options),
        conditions=evidence.conditions(options),
    )  # fmt: skip


if __name__ == "__main__":
    main()
