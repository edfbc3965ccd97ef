"""Counts what compiled rounds of decoding make an accelerator do: operations, copies, scatters.

    make aot            two layers of each stack, compared with `expected.json`
    make aot-full       the whole 1B model; writes `results.json` and its table

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

import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from bytelax.models.blt import BLT
from experiments.compile.rounds import reckoned
from experiments.harness import ahead_of_time, random_blt, study
from experiments.harness.compiled import Operation, operations
from experiments.harness.decode_program import decode_program
from experiments.harness.one_b import one_b

CAPACITY = 2048  # bytes in the buffer of a row
LARGE = 1e6  # bytes; what is copied below that is no cache
SLACK = 1.1  # as many operations as expected, times this, are still fine
GHZ = {"v5e": 1.5, "v6e": 1.75, "v5p": 1.75}  # of the matrix units, from the data sheets' peaks
OPTIONS = {
    "ar": {},
    "blt-s": {"draft_length": 8},
    "blt-dv": {"block_size": 8},
    "eagle": {"draft_length": 8},
    "dflash": {},
}
DRAFT_STEPS = {"blt-s": 8, "eagle": 8}  # a block in one step is filled outside the loop
# Runs of the global transformer a round: one, and in plain decoding one a patch, of 4.4 bytes on
# natural prompts.
CHUNKS = {"ar": 1 / 4.4}
PARTS = ("call", "round", "draft", "chunk")


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


def measure(setting: Setting, *, layers: int | None = None) -> dict:
    """What the program of a setting does.

    Args:
      setting: the program.
      layers: of each stack at most; None for all.
    """
    platform = ahead_of_time.platform(setting.chip)
    device = ahead_of_time.devices(platform, ahead_of_time.CHIPS[setting.chip])[:1]
    mesh = Mesh(np.array(device).reshape(1, 1), ("data", "tensor"))
    config = one_b(layers, block_size=8 * setting.method.startswith("blt-d"))
    if setting.method in ("eagle", "dflash"):
        config = dataclasses.replace(config, heads=random_blt.draft_heads(config.decoder))
    with ahead_of_time.tracing(platform):
        decode, args = decode_program(
            BLT(config),
            setting.method,
            batch=setting.batch,
            capacity=CAPACITY,
            **OPTIONS[setting.method],
        )
        program = ahead_of_time.compiled(
            decode, args, mesh=mesh, specs=(P(), P()), decodes=True, donate_argnums=1
        )
    found = operations(program.as_text())
    return count(found, decoder_layers=config.decoder.layers) | {
        "draft_steps": DRAFT_STEPS.get(setting.method, 0),
        "temporary_bytes": program.memory_analysis().temp_size_in_bytes,
    }


def count(found: list[Operation], *, decoder_layers: int) -> dict:
    """The figures of a program's parts, each run once.

    The parts are the call (what runs once around the loop), the round, a step of the draft, and a
    chunk of the global transformer.
    """
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
    where = "draft" if in_layers["draft"] else "round"
    return {
        "parts": {name: dict(figures) for name, figures in parts.items() if figures},
        "operations_per_decoder_layer": round(in_layers[where] / decoder_layers, 1),
    }


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


def whole(setting: Setting, row: dict, figure: str) -> float:
    """A figure of a whole round: with all steps of the draft and the chunks of the global model."""
    times = {"round": 1, "draft": row["draft_steps"], "chunk": CHUNKS.get(setting.method, 1)}
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
    study.run(
        args.results / "results.json",
        {"capacity": CAPACITY, "large": LARGE},
        [dataclasses.asdict(setting) for setting in FULL],
        lambda setting: measure(Setting(**setting)),
        markdown=markdown,
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
block. A round of `ar` is a byte, with a chunk every 4.4 bytes. *Operations* are what the device
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
    return "\n".join(lines) + "\n"


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
