"""What the compiled kernels are worth on a processor, beside XLA's products and attention.

    python -m experiments.speed.native.run

Plain decoding at one row, and rounds in which eight bytes are really drafted and half of them kept,
with real patches. Programs with the compiled kernels and without them run in turns in one process,
on the same weights and text.
"""

import contextlib
import dataclasses
import math
import statistics

from bytelax_kernels import native

import bytelax
from bytelax.measure.timing import PLAIN, Contestant
from bytelax.models.configs import BLTConfig
from experiments.harness import floor, random_blt, replay, roofline, study

MINUTES = 12
KERNELS = ("xla", "compiled")
DRAFTED, KEPT = 8, 4


def drafting(model):
    """The method that drafts eight bytes: `blt-s`, or `eagle` on a byte transformer."""
    method = "blt-s" if isinstance(model.config, BLTConfig) else "eagle"
    accept = replay.Replayed((1.0,) * KEPT + (0.0,) * (DRAFTED - KEPT))
    return Contestant(method, {"draft_length": DRAFTED, "accept": accept})


def measure(setting, options, machines):
    """Milliseconds of a plain byte and of a round by each kind of kernels, and their ratios."""
    dtype = setting["dtype"]
    if dtype not in machines:
        machines[dtype] = floor.measured(dtype, megabytes=16 if options.smoke else 512)
    model, text = random_blt.or_bundled(setting["model"], options.context + options.new, dtype)
    prompt = text[: options.context]
    models = {kind: dataclasses.replace(model) for kind in KERNELS}  # weights laid out for each
    ways = {"plain": PLAIN, "round": drafting(model)}

    def run(kind, way):
        with native.left_out() if kind == "xla" else contextlib.nullcontext():
            return bytelax.generate(
                models[kind], [prompt], method=way.method, max_new_bytes=options.new,
                allow_eos=False, **way.settings,
            )  # fmt: skip

    pairs = [(kind, name) for kind in KERNELS for name in ways]
    first = {pair: run(pair[0], ways[pair[1]]) for pair in pairs}  # compiles
    taken = {pair: [] for pair in pairs}
    for _ in range(options.repeats):
        for kind, name in pairs:
            stats = run(kind, ways[name]).stats
            taken[kind, name].append((stats.seconds - stats.prefill_seconds) / stats.rounds)
    reading = machines[dtype]._replace(flops_per_second=math.inf)

    def least(way):
        stats = first["compiled", way].stats
        return roofline.seconds(
            model, ways[way], stats, reading, rows=1, context=options.context,
            itemsize=4 if dtype == "float32" else 2, patcher_itemsize=4,
        ) / stats.rounds  # fmt: skip

    return {
        "ms": {"/".join(pair): 1e3 * statistics.median(own) for pair, own in taken.items()},
        "floor_ms": 1e3 * least("plain"),
        "read_in_plain_bytes": least("round") / least("plain"),
        "same_bytes": first["xla", "plain"].bytes == first["compiled", "plain"].bytes,
        **{f"{name}_speed": _ratios(taken["xla", name], taken["compiled", name]) for name in ways},
        "in_plain_bytes": {
            kind: _ratios(taken[kind, "round"], taken[kind, "plain"]) for kind in KERNELS
        },
    }


def _ratios(above, below):
    each = sorted(a / b for a, b in zip(above, below, strict=True))
    return [statistics.median(each), each[0], each[-1]]


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--models", nargs="+", default=["tiny-lm", "tiny", "35M", "100M"])
    options.add_argument("--context", type=int, default=128, help="bytes of the prompt")
    options.add_argument("--new", type=int, default=128, help="bytes generated")
    options.add_argument("--repeats", type=int, default=9)
    options = options.parse_args()
    if options.smoke:
        options.models, options.context, options.new, options.repeats = ["smallest"], 48, 24, 1
    machines = {}
    study.run(
        options.results / f"{study.MAIN}.json",
        {
            "instructions": native.instructions(),
            **{name: getattr(options, name) for name in ("context", "new", "repeats")},
        },
        [
            {"model": model, "dtype": dtype}
            for model in options.models
            for dtype in ("float32", "bfloat16")
        ],
        lambda setting: measure(setting, options, machines),
        markdown=markdown,
    )


def markdown(report):
    lines = [
        "# Compiled kernels on a processor",
        "",
        f"One row, prompts of {report['context']} bytes, {report['new']} new ones; medians of "
        f"{report['repeats']} runs in turns in one process, in brackets the range of their "
        f"ratios; kernels for {report['instructions']}; "
        f"{study.machine(report, 'float32 and bfloat16')}. A round drafts "
        f"{DRAFTED} bytes by `blt-s` (`eagle` on `tiny-lm`), verifies them in one pass over "
        f"{DRAFTED + 1}, and keeps {KEPT}. Floor: what reading the weights of a plain byte takes "
        "at the bandwidth of this machine's memory; the caches hold `tiny` and `tiny-lm`. A round "
        "reads the decoder eight times to draft, and to verify the whole global transformer once, "
        "of which a plain byte reads its share of a patch. Models other than these have random "
        "weights.",
        "",
        *study.table(_HEADER, [_cells(row) for row in report["rows"]]),
    ]  # fmt: skip
    return "\n".join([*lines, ""])


_HEADER = (
    "model", "weights", "plain byte, XLA, ms", "compiled, ms", "floor, ms", "times as fast",
    "round, XLA, ms", "compiled, ms", "times as fast", "a round in plain bytes, XLA", "compiled",
    "weights that it reads, in plain bytes",
)  # fmt: skip


def _cells(row):
    ms = row["ms"]
    return (
        f"`{row['setting']['model']}`", row["setting"]["dtype"], f"{ms['xla/plain']:.3f}",
        f"{ms['compiled/plain']:.3f}", f"{row['floor_ms']:.3f}", _told(row["plain_speed"]),
        f"{ms['xla/round']:.2f}", f"{ms['compiled/round']:.2f}", _told(row["round_speed"]),
        _told(row["in_plain_bytes"]["xla"]), _told(row["in_plain_bytes"]["compiled"]),
        f"{row['read_in_plain_bytes']:.1f}",
    )  # fmt: skip


def _told(ratios):
    return "{:.2f} ({:.2f} to {:.2f})".format(*ratios)


if __name__ == "__main__":
    main()
