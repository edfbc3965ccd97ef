"""A byte transformer that drafts for itself: acceptance, projected and measured speed.

    python -m experiments.speed.self_drafting.run --data DIR

Every method on the bundled `tiny-lm`, beside the published figures (which are projections), at
temperature 0 and 1; and, for the bundled model and for the published shape with random weights,
what a window of W bytes costs beside W windows of one, what verifying from the exit's states saves,
and what the caches save.
"""

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import calculator, load, vocab
from bytelax.decode import ByteLMTarget, Text
from bytelax.decode.targets.byte_lm import FirstLayers
from bytelax.model import Model
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.transformer_config import TransformerConfig
from experiments.harness import roofline, side_by_side, speed_table, study

MINUTES = 30
RESULTS = (study.MAIN, "windows")
# The best set of `bytelax layers tiny-lm` on textbooks that leaves every layer a part of it.
SEARCHED = {"skip_attention": (1, 2, 5, 11), "skip_mlp": (1, 2, 3, 4), "draft_length": 1}
# method, settings, what the first row of systems that draft for themselves published for it.
SETTINGS = [
    ("early-exit", {"exit_layer": 6, "exit_head": False, "draft_length": 4}, "42 %, 1.27x"),
    ("early-exit", {"exit_layer": 6, "draft_length": 4}, "48 to 85 %, 1.74x"),
    ("early-exit", {"exit_layer": 3, "draft_length": 4}, ""),
    (
        "early-exit",
        {"exit_layer": 6, "draft_length": 4, "verify_from": "embedding"},
        "",
    ),
    ("two-byte", {"state_layer": 12}, "75 %"),
    ("two-byte", {"state_layer": 6}, "58 %"),
    ("medusa", {}, ""),
    ("medusa", {"branches": (3, 2, 1), "nodes": 8}, ""),
    ("composed", {"exit_layer": 6, "draft_length": 4}, "2.25x"),
    ("layer-skip", {"draft_length": 4}, "up to 1.99x (LLaMA-2)"),
    ("layer-skip", SEARCHED, ""),
    ("eagle", {"draft_length": 4}, "open"),
    ("eagle", {"draft_length": 8}, "open"),
    ("eagle", {"draft_length": 4, "beam": 2, "nodes": 8}, "open"),
    ("lookup", {"draft_length": 8}, ""),
    ("draft-model", {"draft_length": 4}, ""),
    ("spectr", {"drafts": 2, "draft_length": 4}, "2.13x"),
]
PUBLISHED = TransformerConfig(
    dim=768, layers=12, heads=12, kv_heads=12, head_dim=64, ffn_dim=2048, window=None
)


def measured(model, small, texts, setting, passes, *, how):
    """A method's figures, what formulas say of them, and the price of its passes at 85M."""
    chosen = dict(setting)
    method, temperature = chosen.pop("method"), chosen.pop("temperature")
    if method in ("draft-model", "spectr"):
        chosen["draft_model"] = small
    row = side_by_side.measure(model, texts, method, chosen, temperature=temperature, **how)
    place = [a for a in row["acceptance_by_position"] if a is not None]
    # The chance of a byte given that those before it were accepted, as the papers count it.
    reached = sum([1.0, *place[:-1]])
    row["acceptance_of_reached"] = sum(place) / reached if place else None
    row |= formula(model, row, chosen, method)
    return row | priced(row, chosen, method, passes, model.config.trunk.layers)


def formula(model, row, settings, method):
    """Bytes a round from one chance a byte, and the speed that papers project from it."""
    chance = row["acceptance_of_reached"]
    length = len(row["acceptance_by_position"])
    if chance is None or "nodes" in settings or method == "spectr":
        return {}
    expected = calculator.bytes_per_round_at(chance, length)
    drafting, verified = roofline.layer_shares(model.config.trunk.layers, settings, method, length)
    return {
        "expected_bytes_per_round": expected,
        "projected_speed": expected / (drafting + verified),
    }


def priced(row, settings, method, passes, layers):
    """The speed that the measured bytes a round would give where passes take what `passes` took."""
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
    return {"priced_speed": row["bytes_per_round"] * one / (drafting * one + window)}


def windows(model, repeats, context=512):
    """Median seconds of a pass over W bytes behind `context` bytes, for several W."""
    ids = np.full((1, context), vocab.OFFSET + 97, np.int32)
    ids[:, 0] = vocab.BOS
    text = Text(jnp.asarray(ids), jnp.asarray([context]))
    exit_layer = model.config.trunk.layers // 2
    target = ByteLMTarget(model.module, capacity=context + 64, width=32)
    state = jax.jit(target.prefill)(model.params, text)

    def whole(state, window):
        return target.extend(model.params, state, window)

    def from_the_exit(state, window):
        bound = model.module.bind({"params": model.params})
        computed = FirstLayers(bound.embed(window), state.caches[:exit_layer], exit_layer)
        return target.extend(model.params, state, window, computed=computed)

    seconds = {
        name: {
            str(width): timed(target, step, state, width, repeats=repeats)
            for width in (1, 2, 4, 8, 16, 32)
        }
        for name, step in (("whole", whole), ("from the exit", from_the_exit))
    }
    parallel = jax.jit(lambda ids: model.module.apply({"params": model.params}, ids)[:, -1])
    parallel(jnp.asarray(ids)).block_until_ready()
    begin = time.perf_counter()
    for _ in range(3):
        parallel(jnp.asarray(ids)).block_until_ready()
    seconds["no cache"] = (time.perf_counter() - begin) / 3
    return {"seconds": seconds}


def timed(target, step, state, width, *, repeats, loops=20):
    """Median seconds of a pass, many of them inside one program so that calls cost nothing."""
    window = jnp.full((1, width), vocab.OFFSET + 97, jnp.int32)

    @jax.jit
    def many(state, window):
        def body(_, carry):
            state, window = carry
            logits, trial = step(state, window)
            # The next pass hangs on this one's result.
            shift = (logits[0, 0, 0] > 1e30).astype(jnp.int32)
            return target.commit(trial, jnp.zeros(1, jnp.int32)), window + shift

        return jax.lax.fori_loop(0, loops, body, (state, window))

    jax.block_until_ready(many(state, window))
    times = []
    for _ in range(max(repeats, 3)):
        begin = time.perf_counter()
        jax.block_until_ready(many(state, window))
        times.append((time.perf_counter() - begin) / loops)
    return statistics.median(times)


def published_shape():
    """Twelve layers of width 768, random weights."""
    module = ByteLM(ByteLMConfig(trunk=PUBLISHED, max_bytes=2048))
    init = jax.jit(module.init)
    return Model(module, init(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"])


def main():
    options = study.parser(__doc__, __file__, model="tiny-lm")
    options.add_argument("--draft-model", default="tiny-draft")
    options.add_argument("--prompts", type=int, default=8)
    options.add_argument("--new", type=int, default=256, help="bytes generated a prompt")
    options.add_argument("--repeats", type=int, default=5)
    options = options.parse_args()
    how = {"new": options.new, "repeats": options.repeats}
    passes = study.run(
        options.results / "windows.json",
        {"repeats": options.repeats, "context": 512},
        [{"model": name} for name in (options.model, *([] if options.smoke else ["85M"]))],
        lambda setting: windows(
            published_shape()
            if setting["model"] == "85M"
            else load(options.model, dtype="float32"),
            options.repeats,
        ),
        markdown=window_table,
    )["rows"]
    model = load(options.model, dtype="float32")
    small = load(options.draft_model, dtype="float32")
    texts = side_by_side.prompts(options.data, options.prompts)
    settings = [
        {"method": method, "temperature": temperature, **chosen}
        for temperature in (0.0, 1.0)
        for method, chosen, _ in SETTINGS
        if temperature or method != "spectr"
    ]
    study.run(
        options.results / "results.json",
        {"model": options.model, "prompts": len(texts), "prompt_bytes": 256, **how},
        settings[:2] if options.smoke else settings,
        lambda setting: measured(model, small, texts, setting, passes[-1]["seconds"], how=how),
        markdown=markdown,
    )


def headline(report):
    if "method" in report["rows"][0]["setting"]:  # not of windows
        yield from speed_table.best_settings(report)


def markdown(report):
    published = {
        str(study.plain({"method": method, **chosen})): figure
        for method, chosen, figure in SETTINGS
    }
    header = (
        "method", "setting", "T", "accepted %", "bytes/round", "by formula", "projected", "speed",
        "range", "priced at 85M", "same output", "published",
    )  # fmt: skip
    rows = []
    for row in report["rows"]:
        chosen = dict(row["setting"])
        temperature = chosen.pop("temperature")
        figure = published[str(chosen)]
        method, accepted = chosen.pop("method"), row["acceptance_of_reached"]
        low, high = row["decode_speed_range"]
        rows.append(
            (
                method,
                side_by_side.named(chosen),
                f"{temperature:.0f}",
                None if accepted is None else f"{100 * accepted:.1f}",
                f"{row['bytes_per_round']:.2f}",
                _number(row, "expected_bytes_per_round"),
                _number(row, "projected_speed"),
                f"{row['decode_speed']:.2f}",
                f"{low:.2f} to {high:.2f}",
                _number(row, "priced_speed"),
                None if temperature else f"{row['same_outputs']}/{report['prompts']}",
                figure,
            )
        )
    return "\n".join(
        [
            "# A byte transformer that drafts for itself, measured",
            "",
            f"`{report['model']}`, {report['prompts']} held-out prompts of "
            f"{report['prompt_bytes']} bytes, {report['new']} new bytes, batch 1, "
            f"{study.machine(report)}. Speed: median of {report['repeats']} ratios to plain "
            "decoding (W = 1, with caches) beside it, taking in the prompt left out. Accepted: of "
            "the drafted bytes that were reached. Projected: from that chance and the layers that "
            "run. Priced: the measured bytes a round at what passes of the published shape (85M, "
            "`windows.md`) take on this machine.",
            "",
            *study.table(header, rows),
            "",
        ]
    )


def window_table(report):
    lines = ["# A window of W bytes", "", f"Batch 1, {study.machine(report)}."]
    for row in report["rows"]:
        passes = row["seconds"]
        whole, rest, uncached = passes["whole"], passes["from the exit"], passes["no cache"]
        one = whole["1"]
        header = ("W", "ms", "beside W = 1", "beside W passes of one", "from the exit, ms")
        lines += [
            "",
            f"`{row['setting']['model']}`, {report['context']} bytes of context:",
            "",
            *study.table(
                header,
                [
                    (
                        w,
                        f"{1000 * s:.2f}",
                        f"{s / one:.2f}",
                        f"{int(w) * one / s:.2f}x cheaper",
                        f"{1000 * rest[w]:.2f}",
                    )
                    for w, s in whole.items()
                ],
            ),
            "",
            f"Without caches a byte takes {1000 * uncached:.2f} ms: the caches make it "
            f"{uncached / one:.0f} times faster (published: 19).",
        ]
    return "\n".join([*lines, ""])


def _number(row, name):
    return f"{row[name]:.2f}" if name in row else None


if __name__ == "__main__":
    main()
