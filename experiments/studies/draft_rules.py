"""What rules of acceptance gain.

Drafts of 8 bytes, verified byte by byte and as a block, and accepted by Medusa's typical
acceptance, which is lossy: how likely its text is to the model stands in the last columns. At
temperature 0 all rules are the same, so only temperature 1 is measured.

    python -m experiments.studies.draft_rules --data DIR
"""

from bytelax import decode, systems
from bytelax.measure.timing import Contestant
from experiments import evidence, study
from experiments.study import Column

EIGHT = {"draft_length": 8}
DRAFTERS = (("tiny", "blt-s"), ("tiny-lm", "eagle"), ("tiny-lm", "draft-model"))
BYTES, BLOCK, TYPICAL = "byte by byte", "as a block", "typical acceptance"
COLUMNS = [
    Column("model", "model"),
    Column("method", "method"),
    Column("rule", "rule"),
    *evidence.COUNTED[:4],
    Column("speed", "speed", ".2f"),
    Column("lossless", "lossless"),
    Column("bits per byte of the text", "bits_per_byte", ".3f"),
    Column("of plain decoding", "plain_bits_per_byte", ".3f"),
]


def main():
    options = evidence.parsed(evidence.parser(__doc__, new=96))
    texts = evidence.prompts(options)
    stems = tuple(text for _, text in texts)
    settings = [
        {"model": model, "method": method, "options": EIGHT, "rule": rule, "temperature": 1.0}
        for model, method in DRAFTERS
        for rule in (BYTES, BLOCK, TYPICAL)
        # EAGLE drafts from states that only its own method arranges.
        if (method, rule) != ("eagle", TYPICAL)
    ]

    def measure(setting):
        model = evidence.loaded(setting["model"], dtype="float32")
        own = contestant(model, setting["method"], setting["rule"])
        found = evidence.decoded(model, stems, own, new=options.new, temperature=1.0)
        plain = evidence.plainly(model, stems, options.new, 1.0)
        return evidence.drafted(setting, texts, options, own=own) | {
            "acceptance": evidence.figures(found)["acceptance"],
            "bits_per_byte": evidence.bits_per_byte(model, stems, found),
            "plain_bits_per_byte": evidence.bits_per_byte(model, stems, plain),
        }

    study.run(
        "draft_rules", options, settings[-1:] if options.smoke else settings, measure,
        conditions=evidence.conditions(options),
    )  # fmt: skip


def contestant(model, method: str, rule: str) -> Contestant:
    """A method under a rule of acceptance; typical acceptance is no option of the named methods."""
    if rule == BLOCK:
        return evidence.contestant(method, EIGHT)
    if rule == BYTES:
        return evidence.contestant(method, EIGHT | {"accept": decode.Lossless(decode.rejection)})
    drafter, given = systems.BltSDrafter(8), {}
    if method == "draft-model":
        small = evidence.loaded(evidence.SMALL, dtype="float32")
        drafter, given = (
            systems.DraftModelDrafter(small.target(), 8),
            {"draft_params": small.params},
        )
    return Contestant(decode.Method(model.target(), drafter, decode.typical), given)


if __name__ == "__main__":
    main()
