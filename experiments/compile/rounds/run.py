"""Counts what compiled rounds of decoding make an accelerator do: operations, copies, scatters.

    make aot            two layers of each stack, compared with `expected.json`
    make aot-full       the whole 1B model; writes `results.json`, `latents.json` and their pages

`--record` writes `expected.json` anew. Needs the extra `aot`. Nothing runs: the figures are read
from optimized programs. Without options the exit status is 1 where a program copies more caches
than expected, or has a tenth more operations.
"""

import collections
import dataclasses
import json
import pathlib
import re
import sys
from collections.abc import Callable

import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from bytelax.models.blt import BLT
from experiments.compile.rounds import latents, reckoned
from experiments.harness import ahead_of_time, study
from experiments.harness.compiled import Operation, operations
from experiments.harness.decode_program import decode_program
from experiments.harness.one_b import one_b

CAPACITY = 2048  # bytes in the buffer of a row
LARGE = 1e6  # bytes; what is copied below that is no cache
SLACK = 1.1  # as many operations as expected, times this, are still fine
# Of the matrix units, from the data sheets' peaks.
GHZ = {"v5e": latents.V5E_GHZ, "v6e": 1.75, "v5p": 1.75}
# What a program is called here: the method and its options.
PROGRAMS = {
    "ar": ("ar", {}),
    "blt-s": ("blt-s", {"draft_length": 8}),
    "blt-dv": ("blt-dv", {"block_size": 8}),
    "eagle": ("eagle", {"draft_length": 8}),
    "dflash": ("dflash", {}),
    "blt-s 16": ("blt-s", {"draft_length": 16}),
    "blt-s 16, predicted": ("blt-s", {"draft_length": 16, "latent": "predicted"}),
    latents.NESTED: (
        "blt-s", {"draft_length": 16, "latent": "predicted", "draft_with": "medusa"},
    ),
}  # fmt: skip
# A block in one step is filled outside the loop. Nested drafts take at most a step for each byte.
DRAFT_STEPS = {name: options.get("draft_length", 0) for name, (_, options) in PROGRAMS.items()}
PARTS = ("call", "round", "draft", "renewal", "chunk")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A program: the decode loop of a method for one device."""

    chip: str
    method: str
    batch: int


QUICK = (Setting("v5e", "blt-s", 8), Setting("h200", "blt-s", 1))
FULL = tuple(
    Setting(*x)
    for x in (
        ("v5e", "blt-s", 8),
        ("v5e", "blt-s", 1),
        ("h200", "blt-s", 1),
        ("h200", "ar", 1),
        ("h200", "eagle", 1),
        ("h200", "dflash", 1),
        ("h200", "blt-dv", 1),
        ("h200", "blt-s", 8),
        ("h200", "ar", 64),
        ("h200", "blt-s", 64),
        ("h200", "eagle", 64),
        ("h200", "blt-dv", 64),
        ("v5e", "ar", 1),
        ("v5e", "ar", 8),
        ("v5e", "eagle", 8),
        ("v5e", "blt-dv", 8),
        ("v6e", "blt-s", 8),
        ("v5p", "blt-s", 8),
        ("v6e", "blt-s", 1),
        ("v5p", "blt-s", 1),
        ("v5p", "blt-s", 64),
    )
)
OF_LATENTS = tuple(
    Setting(chip, method, rows)
    for chip, rows in latents.PLACES
    for method in (latents.PLAIN, *latents.DRAFTS)
)
RESULTS = (study.MAIN, "latents")


def measure(setting: Setting, *, layers: int | None = None) -> dict:
    """What the program of a setting does.

    Args:
      setting: the program.
      layers: of each stack at most; None for all.
    """
    platform = ahead_of_time.platform(setting.chip)
    topology = ahead_of_time.CHIPS[setting.chip]
    device = ahead_of_time.devices(platform, topology, card=setting.chip)[:1]
    mesh = Mesh(np.array(device).reshape(1, 1), ("data", "tensor"))
    method, options = PROGRAMS[setting.method]
    config = one_b(layers, block_size=8 * method.startswith("blt-d"))
    if method in ("eagle", "dflash") or "latent" in options:
        config = dataclasses.replace(config, heads=reckoned.heads_of(config.decoder))
    with ahead_of_time.tracing(setting.chip):
        decode, args = decode_program(
            BLT(config), method, batch=setting.batch, capacity=CAPACITY, **options
        )
        program = ahead_of_time.compiled(
            decode, args, mesh=mesh, specs=(P(), P()), decodes=True, donate_argnums=1
        )
    memory = program.memory_analysis()
    return count(program.as_text(), decoder_layers=config.decoder.layers) | {
        "draft_steps": DRAFT_STEPS[setting.method],
        "temporary_bytes": memory.temp_size_in_bytes,
        "argument_bytes": memory.argument_size_in_bytes,
    }


def count(text: str, *, decoder_layers: int) -> dict:
    """The figures of a program's parts, each run once.

    The parts are the call (what runs once around the loop), the round, a step of the draft, what a
    step has in addition if it predicts a latent, and a chunk of the global transformer.
    """
    parts, in_layers = _counted(operations(text))
    longest, _ = _counted(operations(text, branch=max))
    parts["renewal"] = longest["draft"] - parts["draft"]
    where = "draft" if in_layers["draft"] else "round"
    return {
        "parts": {name: dict(figures) for name, figures in parts.items() if figures},
        "operations_per_decoder_layer": round(in_layers[where] / decoder_layers, 1),
    }


def _counted(found: list[Operation]) -> tuple[dict, collections.Counter]:
    """The figures of the parts, and of each part the operations in layers of the decoder."""
    parts = {name: collections.Counter() for name in PARTS}
    in_layers = collections.Counter()
    for operation in found:
        name, times = _part(operation)
        large = operation.moves and operation.bytes >= LARGE
        parts[name] += collections.Counter(
            operations=times,
            copies=times * large,
            copied_bytes=times * large * operation.bytes,
            scatters=times * operation.scatters,
            cycles=times * operation.cycles,
            copy_cycles=times * large * operation.cycles,
        )
        in_layers[name] += times * bool(re.search(r'op_name="[^"]*decoder\._layer', operation.line))
    return parts, in_layers


def _part(operation: Operation) -> tuple[str, int]:
    """The part that an operation belongs to, and how often it runs in it."""
    outer, *inner = operation.loops or [None]
    if outer is None:
        return "call", 1
    if not inner:
        return "round", 1
    times = 1
    for loop in inner[1:]:
        times *= loop.trips or 1
    return ("draft" if "/draft/" in inner[0].name else "chunk"), times


def whole(setting: Setting, row: dict, figure: str, times: dict | None = None) -> float:
    """A figure of a whole round, with all steps of the draft and the chunks of the global model.

    Args:
      setting, row: of the program.
      figure: its name.
      times: how often a round runs each part; None for patches of the mean length, which close
        independently of one another, and a draft with as many steps as it has bytes.
    """
    if times is None:
        closing, steps = reckoned.in_any_row(1 / reckoned.PATCH, setting.batch), row["draft_steps"]
        chunks = closing if setting.method == "ar" else 1
        times = {"round": 1, "draft": steps, "renewal": closing * steps, "chunk": chunks}
    return sum(times[name] * row["parts"].get(name, {}).get(figure, 0) for name in times)


def unexpected(setting: Setting, row: dict, expected: dict) -> list[str]:
    """What a program does beyond what is expected of it."""
    complaints = []
    for name, known in expected["parts"].items():
        now = row["parts"].get(name, {})
        if now.get("copies", 0) > known.get("copies", 0):
            complaints.append(
                f"{now['copies']} copies of 1 MB or more a {name}, not {known.get('copies', 0)}"
            )
        if now.get("operations", 0) > SLACK * known["operations"]:
            complaints.append(f"{now['operations']} operations a {name}, not {known['operations']}")
    return complaints


def check(path: pathlib.Path, *, record: bool) -> int:
    """Compiles the shallow programs, and compares them with those that are recorded."""
    expected = {} if record else json.loads(path.read_text())
    status = 0
    for setting in QUICK:
        name = " ".join(map(str, dataclasses.astuple(setting)))
        row = measure(setting, layers=2)
        if record:
            expected[name] = {"parts": row["parts"]}
            continue
        complaints = unexpected(setting, row, expected[name])
        status |= bool(complaints)
        print("FAIL" if complaints else "ok  ", name, "; ".join(complaints), flush=True)
    if record:
        path.write_text(json.dumps(expected, indent=1) + "\n")
    return status


def main() -> int:
    parser = study.parser(__doc__, __file__, model=None)
    parser.add_argument("--full", action="store_true", help="the whole model; writes results")
    parser.add_argument("--record", action="store_true", help="writes what is expected")
    args = parser.parse_args()
    ahead_of_time.prepare()
    if args.smoke:
        print(measure(QUICK[-1], layers=1))
        return 0
    if not args.full:
        return check(pathlib.Path(__file__).with_name("expected.json"), record=args.record)
    for name, settings, page in zip(
        RESULTS, (FULL, OF_LATENTS), (markdown, page_of_latents), strict=True
    ):
        study.run(
            args.results / f"{name}.json",
            {"capacity": CAPACITY, "large": LARGE},
            [dataclasses.asdict(setting) for setting in settings],
            lambda setting: measure(Setting(**setting)),
            markdown=page,
        )
    return 0


LEGEND = """\
The decode loop of the 1B model, all layers, caches donated, buffers of 2,048 bytes, compiled
without the hardware by `make aot-full`: nothing here has run on an accelerator. Copies are copies
and transposes of 1 MB or more, in a round with all its steps and in a step of the draft; *a call*
is what one call of `decode` copies around the loop. At 64 rows hidden states are larger than
that: the copies of v5p there are of 2.4 MB on average, while a layer's keys take 69. A round of
`blt-s` is eight steps of the draft, one pass over the window and one chunk of the global
transformer; `eagle` has eight steps of its draft layer in their place, `dflash` one pass of its
block. A round of `ar` is a byte, with a chunk if a patch, of 4.4 bytes, closes in any row.
*Operations* are what the device
is told to do one after the other: kernels and copies on a GPU; transfers beside them are not
counted. *Estimate* is the TPU compiler's own, from its cycles (1.5 GHz on v5e, 1.75 on v6e and
v5p); it has none for scatters, gathers and Pallas calls, and none at all for the H200."""
HEADER = (
    "for", "method", "rows", "copies a call", "a round", "a draft step", "scatters a round",
    "operations a decoder layer", "a round", "estimate, ms", "of it copies", "of a call, ms",
    "temporary, MiB",
)  # fmt: skip


def markdown(report: dict) -> str:
    """The table; beside each figure the one of `before.json`, if there is one."""
    path = pathlib.Path(__file__).with_name("before.json")
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    old = {json.dumps(row["setting"]): _figures(row) for row in before}
    rows = []
    for row in report["rows"]:
        now, setting = _figures(row), row["setting"]
        earlier = old.get(json.dumps(setting), [None] * len(now))
        cells = [_cell(a, b) for a, b in zip(earlier, now, strict=True)]
        rows.append([setting["chip"], setting["method"], setting["batch"], *cells])
    title = "# What a compiled round does\n"
    lines = [title, f"jax {report['jax']}. {LEGEND}", ""]
    if before:
        lines[1] += " A figure before an arrow is that of the programs before this study."
    if len(rows) < len(FULL):
        lines[1] += f" {len(rows)} of {len(FULL)} programs are compiled so far."
    lines += study.table(HEADER, rows)
    counted = {
        row["setting"]["method"]: whole(Setting(**row["setting"]), row, "operations")
        for row in report["rows"]
        if row["setting"]["chip"] == "h200" and row["setting"]["batch"] == 1
    }
    if "ar" in counted:
        lines += ["", *reckoned.section(counted)]
        lines += ["", "Drafts of 16 bytes on predicted latents: [latents](latents.md)."]
    return "\n".join(lines) + "\n"


def page_of_latents(report: dict) -> str:
    """What drafts across patch boundaries would take, and the parts that it is reckoned from."""
    done = {tuple(row["setting"].values()): row for row in report["rows"]}
    counted = []
    for (chip, method, batch), row in done.items():
        parts = [row["parts"].get(name, {}) for name in ("round", "draft", "renewal", "chunk")]
        counted.append((
            chip, batch, latents.SHOWN.get(method, method),
            *(x.get("operations") for x in parts),
            *(f"{x['cycles'] / GHZ[chip] / 1e6:.2f}" if "cycles" in x else None for x in parts),
        ))  # fmt: skip
    lines = latents.page(reader(report), {key: row["argument_bytes"] for key, row in done.items()})
    return "\n".join([
        *lines, "", "## What is counted", "",
        f"jax {report['jax']}; all layers, caches donated, buffers of {CAPACITY:,} bytes. "
        f"{len(done)} of {len(OF_LATENTS)} programs. A round without its draft, a step of the "
        "draft, what a step has in addition if it predicts a latent, and a chunk of the global "
        "transformer. The estimate is the TPU compiler's own; it has none for scatters, gathers "
        "and Pallas calls.",
        "",
        *study.table(
            (
                "for", "rows", "method", "operations a round", "a step", "a latent", "a chunk",
                "estimate, ms a round", "a step", "a latent", "a chunk",
            ),
            counted,
        ),
        "",
    ])  # fmt: skip


def reader(report: dict) -> Callable[[str, str, int, dict, str], float]:
    """Returns a function that gives a figure of a round, as `latents` asks for it."""
    rows = {Setting(**row["setting"]): row for row in report["rows"]}

    def figure(chip, method, batch, times, name):
        setting = Setting(chip, method, batch)
        return whole(setting, rows[setting], name, times)

    return figure


def _figures(row: dict) -> list[float | None]:
    setting = Setting(**row["setting"])
    ghz = GHZ.get(setting.chip)
    call, draft = (row["parts"].get(name, {}) for name in ("call", "draft"))

    def ms(cycles):
        return None if ghz is None else round(cycles / ghz / 1e6, 1)

    return [
        call.get("copies", 0),
        round(whole(setting, row, "copies")),
        draft.get("copies", 0) if draft else None,
        round(whole(setting, row, "scatters")),
        row["operations_per_decoder_layer"],
        round(whole(setting, row, "operations")),
        ms(whole(setting, row, "cycles")),
        ms(whole(setting, row, "copy_cycles")),
        ms(call.get("cycles", 0)),
        round(row["temporary_bytes"] / 2**20),
    ]


def _cell(before: float | None, now: float | None) -> str | None:
    if now is None:
        return None
    return f"{now:,}" if before is None or before == now else f"{before:,} → {now:,}"


if __name__ == "__main__":
    sys.exit(main())
