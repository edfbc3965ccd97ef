"""Which drafts are accepted: by temperature, by genre, by position, in and out of training text.

    python -m experiments.quality.acceptance.run --data DIR

Methods of both families on the bundled models, at temperature 0, 0.6 and 1, on 64 held-out prompts
of five genres, on as many from test files, by which nothing was chosen, from files that the models
were trained on, and from other sources. Acceptance is the share of the drafted bytes that are kept,
with intervals over prompts.
"""

from bytelax import Statistics, load
from bytelax.measure.timing import Contestant
from experiments.harness import evidence, intervals, published_fast_blt, side_by_side, study
from experiments.quality.acceptance import texts
from experiments.quality.acceptance.texts import HELD_OUT, KINDS

MINUTES = 10
METHODS = (
    ("tiny", "blt-s", {"draft_length": 8}),
    ("tiny", "eagle", {"draft_length": 8}),
    ("tiny", "lookup", {"draft_length": 8}),
    ("tiny-d", "blt-dv", {"block_size": 8, "unmask": "one-step"}),
    ("tiny-d", "blt-dv", {"block_size": 8, "unmask": "confidence", "alpha": 0.7}),
    ("tiny-lm", "early-exit", {"exit_layer": 6, "draft_length": 4}),
    ("tiny-lm", "medusa", {}),
    ("tiny-lm", "eagle", {"draft_length": 4}),
    ("tiny-lm", "draft-model", {"draft_length": 4, "draft_model": "tiny-draft"}),
)
TEMPERATURES = (0.0, 0.6, 1.0)


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--prompts", type=int, default=evidence.PROMPTS, help="of each kind")
    options.add_argument("--context", type=int, default=128, help="bytes of a prompt")
    options.add_argument("--new", type=int, default=96, help="bytes generated a prompt")
    options = options.parse_args()
    found = texts.prompts(options.data, options.prompts, options.context)
    settings = [
        {"model": model, "method": method, "temperature": temperature, **chosen}
        for model, method, chosen in METHODS
        for temperature in TEMPERATURES
    ]
    study.run(
        options.results / "results.json",
        {
            "prompts": options.prompts, "prompt_bytes": options.context, "new": options.new,
            "batch": evidence.BATCH,
        },
        settings[:1] if options.smoke else settings,
        lambda setting: measure(setting, found, options.new),
        markdown=markdown,
        timed=False,
    )  # fmt: skip


def measure(setting, prompts, new):
    """Figures of each kind of text, and of each genre of it."""
    chosen = dict(setting)
    name, method, temperature = (chosen.pop(key) for key in ("model", "method", "temperature"))
    model = load(name, dtype="float32")
    if "draft_model" in chosen:
        chosen["draft_model"] = load(chosen["draft_model"], dtype="float32")
    kinds = {}
    for kind, own in prompts.items():
        results = evidence.decoded(
            model, [text for _, text in own], Contestant(method, chosen), new=new,
            temperature=temperature,
        )  # fmt: skip
        rows = [result.stats for result in results]
        kinds[kind] = evidence.figures(results) | {
            "kept_once_reached_by_position": once_reached(rows),
            "acceptance_by_genre": by_genre(rows, [genre for genre, _ in own]),
        }
    return {"kinds": kinds}


def once_reached(rows):
    """Of the drafts of which all bytes before a place were kept, the share that keeps it too."""
    total = Statistics.total(rows)
    kept = total.accepted_by_position
    reached = [total.drafted_by_position[0], *kept[:-1]] if kept else []
    return [k / r if r else None for k, r in zip(kept, reached, strict=True)]


def by_genre(rows, genres):
    return {
        genre: evidence.ratio(
            [row for row, own in zip(rows, genres, strict=True) if own == genre],
            "accepted",
            "drafted",
        )
        for genre in dict.fromkeys(genres)
    }


def markdown(report):
    rows = report["rows"]
    first = rows[0]["kinds"][HELD_OUT]["acceptance_by_genre"] if rows else ()
    return "\n".join(
        [
            "# Which drafts are accepted",
            "",
            *evidence.warning(report),
            f"{evidence.conditions(report)} As many from each other kind of text.",
            "",
            *evidence.LEGEND,
            evidence.latents(),
            published_fast_blt.LEGEND,
            "- The end of a text cuts its last draft short: what it cuts off counts as drafted and "
            "not kept.",
            "- All in per cent but loops and bytes per round.",
            "",
            "## On held-out text",
            "",
            *table(
                rows, ("acceptance", "without loops", "published", "loops", "bytes per round"),
                held_out,
            ),
            "",
            "## By genre of held-out text",
            "",
            *table(rows, first, lambda row: [
                percent(each) for each in row["kinds"][HELD_OUT]["acceptance_by_genre"].values()
            ]),
            "",
            "## In and out of training text",
            "",
            "Seen: files that the models and drafters were trained on, of which they have read a "
            "part; held out: other files of the same sources, some for validation and some for "
            "tests, by which nothing was chosen; other source: plays of Shakespeare, "
            "HumanEval's programs and FLORES-200's sentences. Texts of two kinds also differ in "
            "how easy they are.",
            "",
            *table(rows, KINDS, lambda row: [
                percent(row["kinds"][kind]["acceptance"]) for kind in KINDS
            ]),
            "",
            "## By place in the draft, on held-out text",
            "",
            "Acceptance: kept, of those that were drafted at this place. Once reached: kept, of "
            "those before which none was refused, also in a last draft.",
            "",
            *table(rows, ("acceptance: first, second, ...", "once reached"), places),
            "",
        ]
    )  # fmt: skip


def table(rows, header, cells):
    """Lines of a table with a setting a line; `cells` are those of a row."""
    return study.table(
        ("model", "method", "T", *header),
        [(f"`{row['setting']['model']}`", named(row["setting"]),
          f"{row['setting']['temperature']:g}", *cells(row)) for row in rows],
    )  # fmt: skip


def held_out(row):
    own = row["kinds"][HELD_OUT]
    return (
        percent(own["acceptance"]), percent(own["acceptance_without_loops"]),
        published_fast_blt.shown(row["setting"]["method"], row["setting"]), own["loops"],
        intervals.shown(own["bytes_per_round"]),
    )  # fmt: skip


def places(row):
    own = row["kinds"][HELD_OUT]
    return (
        ", ".join("never" if share is None else f"{100 * share:.1f}" for share in own[name])
        for name in ("acceptance_by_position", "kept_once_reached_by_position")
    )


def named(setting):
    """A setting as a table shows it."""
    options = {
        name: value
        for name, value in setting.items()
        if name not in ("model", "method", "temperature")
    }
    return f"{setting['method']} {side_by_side.named(options)}".rstrip()


def percent(figure):
    return intervals.shown(figure, ".1f", times=100)


if __name__ == "__main__":
    main()
