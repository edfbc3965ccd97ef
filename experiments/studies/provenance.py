"""Who wrote each byte of a text: the draft, or the model that verifies it.

The prompts of `bytelax demo`, continued greedily by `small-lm` with drafts of `small-draft`. By
byte: `d` was drafted and kept, `c` the model's own in the place of a refused byte, `f` its own
after a draft that was kept whole. The README's figure is made of these rows; it takes the time of
a byte and of a round from `small_lm`.

    python -m experiments.studies.provenance
"""

from bytelax import generate, load
from bytelax.measure import demo
from experiments import study
from experiments.study import Column

MODEL, DRAFTS = "small-lm", {"draft_model": "small-draft", "draft_length": 4}
COLUMNS = [
    Column("prompt", "written.prompt"),
    Column("continued by", "written.text"),
    Column("who wrote each byte", "origins"),
    Column("rounds", "rounds"),
    Column("bytes per round", "bytes_per_round", ".2f"),
]


def main():
    options = study.parser(__doc__).parse_args()
    new = 8 if options.smoke else demo.NEW
    model = load(MODEL)

    def measure(setting):
        out = generate(
            model, [setting["prompt"]], method="draft-model", max_new_bytes=new, stop=demo.STOP,
            origins=True, **DRAFTS,
        )  # fmt: skip
        (result,) = out.results
        assert result.origins is not None
        return {
            "written": {"prompt": repr(setting["prompt"]), "text": repr(result.text)},
            "origins": "".join(name[0] for name in result.origins.names),
            "rounds": result.stats.rounds,
            "bytes": result.stats.bytes,
            "bytes_per_round": result.stats.bytes / result.stats.rounds,
        }

    prompts = [prompt.decode() for prompt in demo.PROMPTS]
    settings = [{"model": MODEL, "options": DRAFTS, "prompt": each} for each in prompts]
    study.run(
        "provenance", options, settings, measure, conditions={"new_bytes": new}, timed=False
    )  # fmt: skip


if __name__ == "__main__":
    main()
