"""What a compiled round of decoding makes an accelerator do: operations, copies, scatters.

The decode loop of the 1B model for a TPU or an H200, compiled without the hardware; nothing runs.
Copies are copies and transposes of 1 MB or more: "a call" has those around the loop. A round of
`blt-s` is eight steps of the draft, one pass over the window and one chunk of the global
transformer; `eagle` has eight steps of its draft layer instead, `dflash` one pass of its block. A
round of `ar` is a byte, with a chunk if a patch closes in any row. "Operations" are what a device
executes one after another. "Estimate" is the TPU compiler's; it has none for scatters, gathers and
Pallas calls, and none for the H200.

    make aot            two layers of each stack, compared with compile_rounds.json
    make aot-full       the whole model; writes results

`--record` writes compile_rounds.json. The exit status is 1 where a program copies more caches than
it says, or has a tenth more operations. Needs the extra `aot`.
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
from experiments import study
from experiments.harness import ahead_of_time, random_blt
from experiments.harness.compiled import Operation, operations
from experiments.harness.decode_program import decode_program
from experiments.harness.one_b import one_b
from experiments.study import Column

CAPACITY = 2048  # bytes in the buffer of a row
PATCH = 4.4  # bytes, as in the text of `tiny`
LARGE = 1e6  # bytes; what is copied below that is no cache
SLACK = 1.1  # as many operations as expected, times this, are still fine
# Of the matrix units, from the data sheets' peaks.
GHZ = {"v5e": 1.5, "v6e": 1.75, "v5p": 1.75}
# What a program is called here: the method and its options.
PROGRAMS = {
    "ar": ("ar", {}),
    "blt-s": ("blt-s", {"draft_length": 8}),
    "blt-dv": ("blt-dv", {"block_size": 8}),
    "eagle": ("eagle", {"draft_length": 8}),
    "dflash": ("dflash", {}),
    "blt-s 16": ("blt-s", {"draft_length": 16}),
    "blt-s 16, predicted": ("blt-s", {"draft_length": 16, "latent": "predicted"}),
}
# A block in one step is filled outside the loop.
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
EXPECTED = pathlib.Path(__file__).with_suffix(".json")
COLUMNS = [
    Column("for", "chip"),
    Column("method", "method"),
    Column("rows", "batch"),
    Column("copies a call", "copies_a_call"),
    Column("a round", "copies_a_round", ".0f"),
    Column("scatters a round", "scatters", ".0f"),
    Column("operations a decoder layer", "operations_per_decoder_layer"),
    Column("a round", "operations", ",.0f"),
    Column("estimate, ms", "estimate_ms", ".1f"),
    Column("of it copies", "copies_ms", ".1f"),
    Column("temporary, MiB", "temporary_mib", ".0f"),
]


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
        config = dataclasses.replace(config, heads=random_blt.draft_heads(config.decoder))
    with ahead_of_time.tracing(setting.chip):
        decode, args = decode_program(
            BLT(config), method, batch=setting.batch, capacity=CAPACITY, **options
        )
        program = ahead_of_time.compiled(
            decode, args, mesh=mesh, specs=(P(), P()), decodes=True, donate_argnums=1
        )
    return count(program.as_text(), decoder_layers=config.decoder.layers) | {
        "draft_steps": DRAFT_STEPS[setting.method],
        "temporary_bytes": program.memory_analysis().temp_size_in_bytes,
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


def whole(setting: Setting, row: dict, figure: str) -> float:
    """A figure of a whole round, with all steps of the draft and the chunks of the global model.

    Patches of the mean length close independently of one another, and a draft has as many steps as
    it has bytes.
    """
    closing, steps = 1 - (1 - 1 / PATCH) ** setting.batch, row["draft_steps"]
    chunks = closing if setting.method == "ar" else 1
    times = {"round": 1, "draft": steps, "renewal": closing * steps, "chunk": chunks}
    return sum(times[name] * row["parts"].get(name, {}).get(figure, 0) for name in times)


def figures(setting: dict) -> dict:
    """The row of a setting."""
    program = Setting(**setting)
    row = measure(program)
    call, ghz = row["parts"].get("call", {}), GHZ.get(program.chip)

    def ms(name):
        return whole(program, row, name) / ghz / 1e6 if ghz else None

    return {
        "copies_a_call": call.get("copies", 0),
        "copies_a_round": whole(program, row, "copies"),
        "scatters": whole(program, row, "scatters"),
        "operations_per_decoder_layer": row["operations_per_decoder_layer"],
        "operations": whole(program, row, "operations"),
        "estimate_ms": ms("cycles"),
        "copies_ms": ms("copy_cycles"),
        "temporary_mib": row["temporary_bytes"] / 2**20,
    }


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


def check(*, record: bool) -> int:
    """Compiles the shallow programs, and compares them with those that are recorded."""
    expected = {} if record else json.loads(EXPECTED.read_text())
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
        EXPECTED.write_text(json.dumps(expected, indent=1) + "\n")
    return status


def main() -> int:
    parser = study.parser(__doc__)
    parser.add_argument("--full", action="store_true", help="the whole model; writes results")
    parser.add_argument("--record", action="store_true", help="writes what is expected")
    options = parser.parse_args()
    ahead_of_time.prepare()
    if options.smoke:
        print(measure(QUICK[-1], layers=1))
        return 0
    if not options.full:
        return check(record=options.record)
    study.run(
        "compile_rounds", options, [dataclasses.asdict(setting) for setting in FULL], figures,
        conditions={"capacity": CAPACITY}, timed=False,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
