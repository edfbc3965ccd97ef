"""Acceptance by position of the bundled models, as a gate.

Prompts of our own, half of them greedy and half at temperature 1, so that no other text is needed
and the rows can be made again anywhere. `tests/test_acceptance.py` compares each place of a draft
with its row: a change that costs drafts two points in a hundred is seen, even where every output
stays right.

    python -m experiments.studies.acceptance
"""

from bytelax import generate, load
from experiments import study
from experiments.study import Column

PROMPTS = (
    "The heart pumps blood ", "A good teacher ", "An economy grows when ", "Water boils when ",
    "In this chapter we ", "She opened the door and ", "The king of the island ", "A cell is ",
    "for i in range(len(values)):\n    if ", "def mean(values):\n    ", "import os\n\ndef read(",
    "class Node:\n    def __init__(self", "de: Das ist ein Haus.\nen: ", "fr: Il est tard.\nen: ",
    "en: Where is my book?\nde: ", "If the force is doubled, ",
)  # fmt: skip
NEW = 96
CASES = (
    ("small-lm", "draft-model", {"draft_model": "small-draft", "draft_length": 4}),
    ("tiny-lm", "draft-model", {"draft_model": "tiny-draft", "draft_length": 4}),
    ("tiny-lm", "eagle", {"draft_length": 4}),
    ("tiny-lm", "medusa", {}),
    ("tiny-lm", "composed", {"draft_length": 4}),
    ("tiny-lm", "early-exit", {"draft_length": 4}),
    ("tiny", "blt-s", {"draft_length": 8}),
    ("tiny", "eagle", {"draft_length": 4}),
)
COLUMNS = [
    Column("model", "model"),
    Column("method", "method"),
    Column("options", "options"),
    Column("by position", "acceptance_by_position", ".1%"),
]


def main():
    options = study.parser(__doc__).parse_args()
    cases = CASES[1:2] if options.smoke else CASES
    new = 8 if options.smoke else NEW
    settings = [
        {"model": model, "method": method, "options": chosen} for model, method, chosen in cases
    ]
    study.run(
        "acceptance", options, settings, lambda setting: measure(setting, new),
        conditions={"new_bytes": new}, timed=False,
    )  # fmt: skip


def measure(setting: dict, new: int = NEW) -> dict:
    """The row of a method."""
    out = generate(
        load(setting["model"]), PROMPTS, method=setting["method"], max_new_bytes=new,
        temperature=[index % 2 for index in range(len(PROMPTS))], allow_eos=False,
        **setting["options"],
    )  # fmt: skip
    return {"acceptance_by_position": out.stats.to_dict()["acceptance_by_position"]}


if __name__ == "__main__":
    main()
