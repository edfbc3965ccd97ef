"""What the compiled kernels gain on a processor, over XLA's products and attention.

A plain byte, and a round that drafts eight bytes (`blt-s`; `eagle` on `tiny-lm`), verifies them in
one pass and keeps four. Programs with and without the compiled kernels run in turns in one process,
on the same weights. "In plain bytes": the time of a round over that of a plain byte. "Floor": what
reading the weights of a plain byte takes at the bandwidth of this machine's memory; the caches hold
`tiny` and `tiny-lm`. The other models have random weights. Where their sums round to other bytes, a
BLT may close other patches.

    python -m experiments.studies.native
"""

import contextlib
import math
import statistics

from bytelax_kernels import native

import bytelax
from bytelax.measure.timing import PLAIN, Contestant, Ratio
from experiments import study
from experiments.harness import floor, random_blt, replay, roofline
from experiments.study import Column

KERNELS = XLA, COMPILED = "xla", "compiled"
DRAFTED, KEPT = 8, 4
COLUMNS = [
    Column("model", "model"),
    Column("weights", "dtype"),
    Column("plain byte, XLA, ms", "xla_plain_ms", ".3f"),
    Column("compiled, ms", "compiled_plain_ms", ".3f"),
    Column("floor, ms", "floor_ms", ".3f"),
    Column("speed", "plain_speed", ".2f"),
    Column("same bytes", "same_bytes"),
    Column("round, XLA, ms", "xla_round_ms", ".2f"),
    Column("compiled, ms", "compiled_round_ms", ".2f"),
    Column("speed", "round_speed", ".2f"),
    Column("in plain bytes, XLA", "xla_in_plain_bytes", ".2f"),
    Column("compiled", "compiled_in_plain_bytes", ".2f"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--models", nargs="+", default=["tiny-lm", "tiny", "35M", "100M"])
    options.add_argument("--context", type=int, default=128, help="bytes of the prompt")
    options.add_argument("--new", type=int, default=128, help="bytes generated")
    options.add_argument("--repeats", type=int, default=9)
    options = options.parse_args()
    if options.smoke:
        options.models, options.context, options.new, options.repeats = ["smallest"], 48, 24, 1
    settings = [
        {"model": model, "dtype": dtype}
        for model in options.models
        for dtype in ("float32", "bfloat16")
    ]
    conditions = {"instructions": native.instructions()} | {
        name: getattr(options, name) for name in ("context", "new", "repeats")
    }
    study.run(
        "native", options, settings, lambda setting: measure(setting, options),
        conditions=conditions,
    )  # fmt: skip


def measure(setting: dict, options) -> dict:
    """Milliseconds of a plain byte and of a round by each kind of kernels, and their ratios."""
    dtype = setting["dtype"]
    machine = floor.measured(dtype, megabytes=16 if options.smoke else 512)
    model, text = random_blt.or_bundled(setting["model"], options.context + options.new, dtype)
    # Weights are laid out for each.
    models = {kind: bytelax.Model(model.module, model.params) for kind in KERNELS}
    accept = replay.Replayed((1.0,) * KEPT + (0.0,) * (DRAFTED - KEPT))
    method = "eagle" if setting["model"] == "tiny-lm" else "blt-s"
    ways = {
        "plain": PLAIN,
        "round": Contestant(method, {"draft_length": DRAFTED, "accept": accept}),
    }

    def run(kind, way):
        with native.left_out() if kind == XLA else contextlib.nullcontext():
            return bytelax.generate(
                models[kind], [text[: options.context]], method=way.method,
                max_new_bytes=options.new, allow_eos=False, **way.settings,
            )  # fmt: skip

    pairs = [(kind, name) for kind in KERNELS for name in ways]
    first = {pair: run(pair[0], ways[pair[1]]) for pair in pairs}  # compiles
    taken: dict[tuple, list[float]] = {pair: [] for pair in pairs}
    for _ in range(options.repeats):
        for kind, name in pairs:
            stats = run(kind, ways[name]).stats
            taken[kind, name].append((stats.seconds - stats.prefill_seconds) / stats.rounds)
    stats = first[COMPILED, "plain"].stats
    least = roofline.seconds(
        model, PLAIN, stats, machine._replace(flops_per_second=math.inf), rows=1,
        context=options.context, itemsize=4 if dtype == "float32" else 2, patcher_itemsize=4,
    ) / stats.rounds  # fmt: skip
    return {
        **{f"{kind}_{name}_ms": 1e3 * statistics.median(taken[kind, name]) for kind, name in pairs},
        "floor_ms": 1e3 * least,
        "same_bytes": first[XLA, "plain"].bytes == first[COMPILED, "plain"].bytes,
        **{
            f"{name}_speed": study.spread(*Ratio.of(taken[XLA, name], taken[COMPILED, name]))
            for name in ways
        },
        **{
            f"{kind}_in_plain_bytes": study.spread(
                *Ratio.of(taken[kind, "round"], taken[kind, "plain"])
            )
            for kind in KERNELS
        },
    }


if __name__ == "__main__":
    main()
