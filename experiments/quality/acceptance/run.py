"""Which drafts are accepted: by temperature, by domain, by position, in and out of training text.

    python -m experiments.quality.acceptance.run --data DIR

Methods of both families on the bundled models, at temperature 0, 0.5 and 1. Every domain has text
that the models were trained on, text held out from the same source, and text of another source.
"""

import collections
import json
import pathlib

from bytelax import Statistics, generate, load
from bytelax.measure import files, translation
from experiments.harness import study

MINUTES = 20
METHODS = [
    {"model": "tiny", "method": "blt-s", "draft_length": 8},
    {"model": "tiny-d", "method": "blt-dv", "block_size": 8, "unmask": "one-step"},
    {"model": "tiny-d", "method": "blt-dv", "block_size": 8, "unmask": "confidence", "alpha": 0.3},
    {"model": "tiny", "method": "lookup", "draft_length": 8},
    {"model": "tiny-lm", "method": "early-exit", "exit_layer": 6, "draft_length": 4},
    {"model": "tiny-lm", "method": "medusa"},
    {"model": "tiny-lm", "method": "eagle", "draft_length": 4},
    {"model": "tiny-lm", "method": "draft-model", "draft_length": 4, "draft_model": "tiny-draft"},
]
TEMPERATURES = (0.0, 0.5, 1.0)
KINDS = ("seen", "held out", "other source")
DOMAINS = ("prose", "code", "translation")


def prompts(data, count, length):
    """Domain and kind to prompts: the beginnings of `length` bytes, or a sentence to translate."""
    root = pathlib.Path(data)

    def text(name):
        return "\n".join(files.lines(root / name)).encode()

    def stretches(whole):
        return files.spread(
            [whole[i : i + length] for i in range(0, len(whole), length)][:-1], count
        )

    def pairs(name):
        rows = [line.split("\t") for line in files.lines(root / name)]
        return [translation.Sentence(source, (target,)) for source, target, *_ in rows]

    def to_translate(sentences):
        task = translation.task(sentences, (), "deu", new=length)
        # Longer ones would need larger buffers than all the rest.
        fitting = [e.prompt for e in task.examples if len(e.prompt) <= length]
        return files.spread(fitting, count)

    functions = [
        row["prompt"].encode() for row in files.records(root / "humaneval/HumanEval.jsonl")
    ]
    return {
        ("prose", "seen"): stretches(text("openstax_ccby/train-00.txt")),
        ("prose", "held out"): stretches(text("openstax_ccby/valid.txt")),
        ("prose", "other source"): stretches(text("tinyshakespeare/input.txt")),
        ("code", "seen"): stretches(text("code_stdlib/train-00.txt")),
        ("code", "held out"): stretches(text("code_stdlib/valid.txt")),
        ("code", "other source"): files.spread([each[-length:] for each in functions], count),
        ("translation", "seen"): to_translate(pairs("tatoeba_deu_eng/train.tsv")),
        ("translation", "held out"): to_translate(pairs("tatoeba_deu_eng/valid.tsv")),
        ("translation", "other source"): to_translate(
            translation.flores(root / "flores200", "deu", "dev")
        ),
    }


def measure(setting, texts, new):
    """Figures of each domain and kind, of each alone, and of everything."""
    setting = dict(setting)
    model = load(setting.pop("model"), dtype="float32")
    found = collections.defaultdict(list)
    for (domain, kind), rows in texts.items():
        out = generate(model, rows, max_new_bytes=new, allow_eos=False, seeds=0, **setting)
        stats = [result.stats for result in out.results]
        for part in (f"{domain}, {kind}", domain, kind, "all"):
            found[part] += stats
    return {"parts": {part: figures(Statistics.total(rows)) for part, rows in found.items()}}


def figures(stats):
    told = stats.to_dict()
    drafted, accepted = stats.drafted_by_position, stats.accepted_by_position
    # A byte is reached if all before it in its draft were accepted.
    reached = [drafted[0], *accepted[:-1]] if drafted else []
    return {
        "drafted": stats.drafted,
        "acceptance": told["acceptance"],
        "acceptance_by_position": told["acceptance_by_position"],
        "acceptance_of_reached_by_position": [
            a / r if r else None for a, r in zip(accepted, reached, strict=True)
        ],
        "bytes_per_round": told["bytes_per_round"],
    }


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--prompts", type=int, default=4, help="of each domain and kind")
    options.add_argument("--length", type=int, default=128, help="bytes of a prompt")
    options.add_argument("--new", type=int, default=96, help="bytes generated a prompt")
    options = options.parse_args()
    texts = prompts(options.data, options.prompts, options.length)
    settings = [{**method, "temperature": t} for method in METHODS for t in TEMPERATURES]
    study.run(
        options.results / "results.json",
        {
            "prompts": options.prompts, "prompt_bytes": options.length, "new": options.new,
            "batch": options.prompts,
        },
        settings[:1] if options.smoke else settings,
        lambda setting: measure(setting, texts, options.new),
        markdown=markdown,
    )  # fmt: skip


def named(setting):
    """A setting as a table shows it."""
    options = {
        name: value
        for name, value in setting.items()
        if name not in ("model", "method", "temperature", "draft_model")
    }
    return f"{setting['method']} {json.dumps(options)}".replace('"', "").replace(" {}", "")


def markdown(report):
    shown = ("all", *DOMAINS, *KINDS)
    rows = [
        (
            row["setting"]["model"], named(row["setting"]), row["setting"]["temperature"],
            *(_percent(row["parts"][part]["acceptance"]) for part in shown),
            f"{row['parts']['all']['bytes_per_round']:.2f}",
        )
        for row in report["rows"]
    ]  # fmt: skip
    places = [
        (
            row["setting"]["model"], named(row["setting"]), row["setting"]["temperature"],
            ", ".join(_percent(share) or "never" for share in
                      row["parts"]["all"]["acceptance_of_reached_by_position"]),
        )
        for row in report["rows"]
    ]  # fmt: skip
    return "\n".join(
        [
            "# Which drafts are accepted",
            "",
            f"{report['prompts']} prompts of {report['prompt_bytes']} bytes or a sentence for each "
            f"domain and kind of text, {report['new']} new bytes, batch {report['batch']}, "
            f"{study.machine(report)}. Seen: the models and drafters were trained on it (so is the "
            "source of what is held out). The end of a text cuts its last draft short, and what it "
            "cuts off counts as drafted and not accepted. Accepted, per cent of the drafted bytes:",
            "",
            *study.table(("model", "method", "T", *shown, "bytes/round"), rows),
            "",
            "By position in the draft, per cent of those reached, which is where all before were "
            "accepted, also in a last draft and in one that is shorter than the longest:",
            "",
            *study.table(("model", "method", "T", "first, second, ..."), places),
            "",
        ]
    )


def _percent(share):
    return None if share is None else f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
