"""A byte transformer that drafts for itself: acceptance, projected and measured speed.

    python -m experiments.speed.self_drafting.run --data DIR

Every method on the bundled `tiny-lm`, beside the published figures (which are projections), at
temperature 0 and 1: what it keeps on 64 held-out prompts of five genres, with intervals over
prompts, and the wall clock of one row at a time on two prompts of each genre. Early exits are swept
by layer and draft length, at those layers that have a trained head. `windows.json` has what a
window of W bytes costs beside W windows of one, what verifying from the exit's states saves, and
what the caches save, for the bundled model and for the published shape with random weights.
"""

import numpy as np

from bytelax import calculator, load
from bytelax.measure.timing import PLAIN, Contestant
from experiments.harness import (
    evidence,
    intervals,
    one_figure,
    roofline,
    side_by_side,
    speed_table,
    study,
)
from experiments.speed.self_drafting import published, windows

MINUTES = 17
RESULTS = (study.MAIN, "windows")
TEMPERATURES = (0.0, 1.0)
# The best set that `layers.py --place-cost 0.15` found, on textbooks and code. One
# attention and one SwiGLU are left, and no gain is expected.
SEARCHED = {
    "skip_attention": (0, *range(2, 12)), "skip_mlp": tuple(range(1, 12)), "draft_length": 1,
}  # fmt: skip
EXITS, LENGTHS = (2, 3, 4, 6), (1, 2, 3, 4)
SETTINGS = (
    ("early-exit", {"exit_layer": 6, "exit_head": False, "draft_length": 4}),
    ("early-exit", {"exit_layer": 6, "draft_length": 4, "verify_from": "embedding"}),
    ("two-byte", {"state_layer": 12}),
    ("two-byte", {"state_layer": 6}),
    ("medusa", {}),
    ("medusa", {"branches": (3, 2, 1), "nodes": 8}),
    ("composed", {"exit_layer": 6, "draft_length": 2}),
    ("composed", {"exit_layer": 6, "draft_length": 4}),
    ("layer-skip", {"draft_length": 4}),
    ("layer-skip", SEARCHED),
    ("eagle", {"draft_length": 4}),
    ("eagle", {"draft_length": 8}),
    ("eagle", {"draft_length": 12}),
    ("eagle", {"draft_length": 4, "beam": 2, "nodes": 8}),
    ("lookup", {"draft_length": 8}),
    ("draft-model", {"draft_length": 4}),
)
# Greedy drafts of one model are all the same, so several of them are sampled only.
SAMPLED = tuple(("spectr", {"drafts": number, "draft_length": 4}) for number in (2, 4, 8))


def settings(exits):
    """Method, temperature and options of every row; an exit without a head of its own is unfair."""
    swept = tuple(
        ("early-exit", {"exit_layer": layer, "draft_length": length})
        for layer in EXITS
        if layer in exits
        for length in LENGTHS
    )
    return [
        {"method": method, "temperature": temperature, **chosen}
        for temperature in TEMPERATURES
        for method, chosen in (*swept, *SETTINGS, *(SAMPLED if temperature else ()))
    ]


def main():
    options = study.parser(__doc__, __file__, model="tiny-lm")
    options.add_argument("--draft-model", default="tiny-draft")
    evidence.add_options(options, new=128)
    options = evidence.parsed(options)
    model = load(options.model, dtype="float32")
    small = load(options.draft_model, dtype="float32")
    passes = study.run(
        options.results / "windows.json",
        {"repeats": options.repeats, "context": 512},
        [{"model": name} for name in (options.model, *([] if options.smoke else ["85M"]))],
        lambda setting: windows.seconds(
            windows.published_shape() if setting["model"] == "85M" else model, options.repeats
        ),
        markdown=windows.table,
    )["rows"][-1]["seconds"]
    texts = evidence.prompts(options)
    exits = model.config.heads.exits if model.config.heads else ()
    how = {"new": options.new, "repeats": options.repeats}
    plain = evidence.decoded(
        model, [text for _, text in texts], PLAIN, new=options.new, temperature=0.0
    )  # fmt: skip
    asked = settings(exits)
    study.run(
        options.results / "results.json",
        {
            "model": options.model, "layers": model.config.trunk.layers, "exits": exits,
            **evidence.measured_on(options, texts),
        },
        [asked[0], next(each for each in asked if each["method"] == "eagle")]
        if options.smoke
        else asked,
        lambda setting: measure(model, small, texts, setting, plain, passes, how=how),
        markdown=markdown,
    )  # fmt: skip


def measure(model, small, texts, setting, plain, passes, *, how):
    """A method's figures, what formulas say of them, and the price of its passes at 85M."""
    chosen = dict(setting)
    method, temperature = chosen.pop("method"), chosen.pop("temperature")
    given = {"draft_model": small} if method in ("draft-model", "spectr") else {}
    own = Contestant(method, chosen | given)
    found = evidence.decoded(
        model, [text for _, text in texts], own, new=how["new"], temperature=temperature
    )
    row = evidence.figures(found) | {
        "by_genre": evidence.by_genre(found, [genre for genre, _ in texts]),
        "same_outputs": None if temperature else evidence.same_outputs(found, plain),
    }
    row |= evidence.speed(model, evidence.few(texts), own, temperature=temperature, **how)
    place = [share for share in row["acceptance_by_position"] if share is not None]
    # The chance of a byte given that those before it were kept, as the papers count it. Trees have
    # several bytes for a place, of which one can be kept.
    chain = place and method != "spectr" and "nodes" not in chosen
    row["kept_once_reached"] = sum(place) / sum([1.0, *place[:-1]]) if chain else None
    row |= formula(model, row, chosen, method)
    return row | priced(row, chosen, method, passes, model.config.trunk.layers)


def formula(model, row, settings, method):
    """Bytes per round from one chance a byte, and the speed that papers project from it."""
    chance = row["kept_once_reached"]
    length = len(row["acceptance_by_position"])
    if chance is None:
        return {}
    expected = calculator.bytes_per_round_at(chance, length)
    drafting, verified = roofline.layer_shares(model.config.trunk.layers, settings, method, length)
    return {
        "expected_bytes_per_round": expected,
        "projected_speed": expected / (drafting + verified),
    }


def priced(row, settings, method, passes, layers):
    """The speed that the measured bytes per round would give if passes took what `passes` took."""
    nodes = settings.get("nodes")
    length = len(row["acceptance_by_position"])
    if method in ("draft-model", "spectr") or (nodes and method == "eagle"):
        return {}
    one = passes["whole"]["1"]
    drafting, verified = roofline.layer_shares(layers, settings, method, length)
    kind = "whole" if verified == 1 else "from the exit"
    widths = sorted(map(int, passes[kind]))
    window = np.interp(length + 1, widths, [passes[kind][str(w)] for w in widths])
    if method == "eagle":  # its layer first takes in the window that was verified
        window *= 1 + 1 / layers
    return {"priced_speed": row["bytes_per_round"]["value"] * one / (drafting * one + window)}


def speeds(report):
    return one_figure.of_rows(report)


def headline(report):
    if "method" in report["rows"][0]["setting"]:  # not of windows
        yield from speed_table.best_settings(report)


def markdown(report):
    header = (
        "method", "setting", "bytes per round", "without loops", "loops", "acceptance",
        "kept once reached", "by formula", "projected", "speed", "range", "priced at 85M",
        "same output", "published",
    )  # fmt: skip
    layers = " and ".join(map(str, report["exits"])) or "none"
    lines = [
        "# A byte transformer that drafts for itself, measured",
        "",
        *evidence.warning(report),
        f"`{report['model']}`, {evidence.conditions(report)}",
        "",
        *evidence.LEGEND,
        "- Trees and `spectr` offer several bytes for one place, of which one can be kept: their "
        "acceptance is low for that reason alone.",
        "- Kept once reached: of the drafted bytes before which none was refused, in per cent.",
        "- By formula: bytes per round from that one chance. Projected: speed from it and the "
        "layers that run.",
        evidence.timed(report),
        "- Priced: the measured bytes per round at what passes of the published shape (85M, "
        "[windows.md](windows.md)) take on this machine.",
        f"- Early exits are tried at the layers that have a trained head ({layers}). Elsewhere "
        "they would draft with an output layer that was never meant for their states.",
    ]
    for temperature in dict.fromkeys(row["setting"]["temperature"] for row in report["rows"]):
        own = [row for row in report["rows"] if row["setting"]["temperature"] == temperature]
        lines += ["", f"## Temperature {temperature:g}", "",
                  *study.table(header, [cells(report, row) for row in own])]  # fmt: skip
    return "\n".join(
        [*lines, "", *published.falsifier(report), "", *published.projections(report["layers"]), ""]
    )


def cells(report, row):
    """A line of the table."""
    chosen = dict(row["setting"])
    method, temperature = chosen.pop("method"), chosen.pop("temperature")
    kept = row["kept_once_reached"]
    return (
        method,
        side_by_side.named(chosen),
        intervals.shown(row["bytes_per_round"]),
        intervals.shown(row["bytes_per_round_without_loops"]),
        f"{row['loops']}/{report['prompts']}",
        intervals.shown(row["acceptance"]),
        None if kept is None else f"{100 * kept:.1f}",
        _number(row, "expected_bytes_per_round"),
        _number(row, "projected_speed"),
        f"{row['decode_speed']:.2f}",
        "{:.2f} to {:.2f}".format(*row["decode_speed_range"]),
        _number(row, "priced_speed"),
        None if temperature else f"{row['same_outputs']}/{report['prompts']}",
        published.figure(method, chosen),
    )


def _number(row, name):
    return f"{row[name]:.2f}" if name in row else None


if __name__ == "__main__":
    main()
