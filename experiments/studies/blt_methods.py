"""The methods of Fast BLT and other drafters on the bundled BLTs.

`tiny` is a BLT, `tiny-d` a BLT-D. `blt-d` verifies nothing and writes another text, whose quality
is not measured here. Published: the lowest and the highest in Tables 3 to 10 of Fast BLT with as
many drafted bytes and the same rule of unmasking; weights there leave out the entropy model.
Blocks that are filled in several steps are timed where `blt-dv` drafts eight bytes.

    python -m experiments.studies.blt_methods --data DIR
"""

from experiments import evidence, study
from experiments.harness.published_fast_blt import rules
from experiments.study import Column

ONE_STEP = {"unmask": "one-step"}
RULES = {"blt-d": [ONE_STEP, *rules("blt-d")], "blt-dv": rules("blt-dv")}
REFRESH = {"latent": "refresh"}  # as published: a second pass renews the latent before each draft
METHODS = (
    *(("tiny", "blt-s", {"draft_length": k}) for k in (4, 8, 16)),
    *(("tiny", "blt-s", {"draft_length": k} | REFRESH) for k in (4, 8, 16)),
    ("tiny", "blt-s", {"draft_length": 16, "latent": "predicted"}),
    ("tiny", "eagle", {"draft_length": 8}),
    ("tiny", "medusa", {}),
    ("tiny", "draft-model", {"draft_length": 4}),
    ("tiny", "lookup", {"draft_length": 8}),
    *(
        ("tiny-d", method, {"block_size": size, **rule})
        for method, chosen in RULES.items()
        for size in (4, 8, 16)
        for rule in chosen
    ),
    *(("tiny-d", "blt-dv", {"block_size": size} | ONE_STEP | REFRESH) for size in (4, 8, 16)),
)
COLUMNS = [
    *evidence.SETTING,
    *evidence.COUNTED,
    Column("without the entropy model", "weights_by_formula", ".2f"),
    Column("published", "published_weights"),
    *evidence.TIMED_COLUMNS,
]


def main():
    options = evidence.parsed(evidence.parser(__doc__, new=96))
    texts = evidence.prompts(options)
    settings = [
        {"model": model, "method": method, "options": chosen, "temperature": temperature}
        for temperature in evidence.TEMPERATURES
        for model, method, chosen in METHODS
    ]
    study.run(
        "blt_methods", options, settings[:1] if options.smoke else settings,
        lambda setting: evidence.drafted(setting, texts, options, timed=timed(**setting)),
        conditions=evidence.conditions(options),
    )  # fmt: skip


def timed(*, method: str, options: dict, **_) -> bool:
    """Whether a row is timed."""
    in_one_step = options.get("unmask") in (None, "one-step")
    return in_one_step or (method == "blt-dv" and options["block_size"] == 8)


if __name__ == "__main__":
    main()
