"""A byte transformer that drafts for itself.

Every method on `tiny-lm`. Early exits are tried by layer and draft length, where a layer has a
trained head. Acceptance of trees and `spectr` is low because they offer several bytes for one
place. "Once reached": of the drafted bytes before which none was refused, the share that is kept.
"Projected": the speed that papers compute from that share and the layers that run; it leaves out
verification.

    python -m experiments.studies.self_drafting --data DIR
"""

from bytelax import calculator
from experiments import evidence, study
from experiments.harness import roofline
from experiments.study import Column

MODEL = "tiny-lm"
METHODS = (
    *(("early-exit", {"exit_layer": layer, "draft_length": length})
      for layer in (3, 6) for length in (1, 4)),
    ("early-exit", {"exit_layer": 6, "exit_head": False, "draft_length": 4}),
    ("early-exit", {"exit_layer": 6, "draft_length": 4, "verify_from": "embedding"}),
    ("two-byte", {"state_layer": 12}),
    ("two-byte", {"state_layer": 6}),
    ("medusa", {}),
    ("medusa", {"branches": (3, 2, 1), "nodes": 8}),
    ("composed", {"exit_layer": 6, "draft_length": 4}),
    ("layer-skip", {"draft_length": 4}),
    # The best set that a search on textbooks and code found: one attention and one SwiGLU are left.
    ("layer-skip", {"skip_attention": (0, *range(2, 12)), "skip_mlp": tuple(range(1, 12)),
                    "draft_length": 1}),
    ("eagle", {"draft_length": 4}),
    ("eagle", {"draft_length": 8}),
    ("eagle", {"draft_length": 4, "beam": 2, "nodes": 8}),
    ("lookup", {"draft_length": 8}),
    ("draft-model", {"draft_length": 4}),
)  # fmt: skip
# Greedy drafts of one model are all the same, so several of them are sampled only.
SAMPLED = tuple(("spectr", {"drafts": number, "draft_length": 4}) for number in (2, 4, 8))
COLUMNS = [
    *evidence.SETTING,
    *evidence.COUNTED[:4],
    Column("once reached", "once_reached", ".1%"),
    Column("projected speed", "projected_speed", ".2f"),
    *evidence.TIMED_COLUMNS,
]


def main():
    options = evidence.parsed(evidence.parser(__doc__, new=128))
    texts = evidence.prompts(options)
    settings = [
        {"model": MODEL, "method": method, "options": chosen, "temperature": temperature}
        for temperature in evidence.TEMPERATURES
        for method, chosen in (*METHODS, *(SAMPLED if temperature else ()))
    ]
    if options.smoke:
        settings = [settings[0], next(each for each in settings if each["method"] == "eagle")]

    def measure(setting):
        row = evidence.drafted(setting, texts, options)
        return row | projected(setting, row["acceptance_by_position"])

    study.run("self_drafting", options, settings, measure, conditions=evidence.conditions(options))


def projected(setting: dict, by_position: list) -> dict:
    """The chance of a byte given that those before it were kept, and the speed that it projects."""
    method, options = setting["method"], setting["options"]
    place = [share for share in by_position if share is not None]
    if not place or method == "spectr" or "nodes" in options:
        return {"once_reached": None, "projected_speed": None}
    chance = sum(place) / sum([1.0, *place[:-1]])
    layers = evidence.loaded(MODEL, dtype="float32").config.trunk.layers
    drafting, verified = roofline.layer_shares(layers, options, method, len(by_position))
    chances = [chance**place for place in range(1, len(by_position) + 1)]
    expected = calculator.bytes_per_round(chances)
    return {"once_reached": chance, "projected_speed": expected / (drafting + verified)}


if __name__ == "__main__":
    main()
