"""Compiles a training step and rounds of decoding for whole pods, without one.

    python experiments/pods.py           a layer of each stack, the smallest pod of each kind
    python experiments/pods.py --full    whole models, all pods; writes results/pods.json and .md

Needs the extra `aot`: libtpu and the CUDA plugin compile on a CPU-only machine. `--full` takes
hours, saves every program as it is compiled, and goes on where it was stopped. A program that does
not compile, does not fit into the devices' memory, or talks between devices more than it has to
makes the exit status 1. What this cannot show: speed on the devices, and their network's.
"""

import argparse
import collections
import dataclasses
import json
import math
import re
import sys
import time
from collections.abc import Callable

from kernels_aot import RESULTS  # first: it sets what JAX reads when it is imported

# isort: split
import jax
from pod_cases import GIB, PODS, TRAIN, Case, cases, mesh_of
from pod_programs import decoding_round, training_step

from bytelax import sharding
from bytelax.training.metrics import peak_flops

_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def compile_case(case: Case) -> dict:
    """Compiles; says what a device holds, what it says to others, and how long XLA thinks it takes.

    A program that is too large for the devices is a row with the compiler's word for it.
    """
    mesh, begin = mesh_of(case), time.perf_counter()
    make = training_step if case.what == TRAIN else decoding_round
    try:
        compiled = _compile(case, *make(case, mesh))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"fits": False, "error": str(error).splitlines()[0][:300]}
    memory = compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes
    held += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    row = {
        "devices": case.mesh.size,
        "rows": case.rows * sharding.batch_parts(mesh),
        "bytes_a_device": held,
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "fits": held < PODS[case.pod].memory,
        "collectives": collectives(compiled.as_text()),
    }
    if PODS[case.pod].platform == "tpu":
        row["seconds"] = _seconds(case, compiled, mesh)
    return row | {"compile_seconds": time.perf_counter() - begin}


def _seconds(case, compiled, mesh):
    """By XLA's cost model: of a round what it expects, of a step its operations at the peak."""
    cost = compiled.cost_analysis()
    if case.what == TRAIN:
        device = mesh.devices.flat[0]
        return cost["flops"] / peak_flops(device.platform, device.device_kind)
    # Each operation that the model does not know counts -1; a round is far shorter than a second.
    seconds = cost["optimal_seconds"] % 1
    if case.what == "blt-s":  # the model counts a loop's body once: seven bytes are missing
        draft = _compile(case, *decoding_round(case, mesh, only_draft=True))
        seconds += 7 * (draft.cost_analysis()["optimal_seconds"] % 1)
    return seconds


def _compile(case, program, args):
    platforms = (PODS[case.pod].platform,)
    return program.trace(*args).lower(lowering_platforms=platforms).compile()


def collectives(text: str) -> dict[str, dict[str, int]]:
    """How often a compiled program talks between devices, by kind, in its draft and in the rest.

    What stands in a loop counts once. So do the pieces that a compiler makes of one exchange, to
    overlap it with other work: they all bear the name of the operation that asked for it.
    """
    found = collections.defaultdict(collections.Counter)
    seen = set()
    for number, line in enumerate(text.splitlines()):
        op = re.search(rf"= .*\b({'|'.join(_KINDS)})(-start)?\(", line)
        if op is None:
            continue
        name = re.search(r'op_name="([^"]*)"', line)
        exchange = (op[1], name[1] if name else number)
        if exchange not in seen:
            seen.add(exchange)
            found["draft" if name and "/draft/" in name[1] else "rest"][op[1]] += 1
    return {part: dict(sorted(kinds.items())) for part, kinds in sorted(found.items())}


def needed(case: Case) -> dict[str, dict[str, int]]:
    """The most that a round has to say: nothing without `tensor`; with it one sum behind each
    attention and each SwiGLU that is split, and the parts of the hash embeddings."""
    if case.mesh.tensor == 1:
        return {}
    c = case.config()
    reads_encoder = c.decoder_input == "encoder"
    encoder, decoder = 2 * c.encoder.layers, 2 * c.decoder.layers + c.decoder_cross_layers
    verify = encoder + decoder + 2 * c.global_transformer.layers + 1  # and of the pooling
    draft = decoder + encoder * reads_encoder if case.what == "blt-s" else 2 * decoder
    gathers = {"all-gather": 1}
    return {
        "draft": {"all-reduce": draft, **(gathers if reads_encoder else {})},
        "rest": {"all-reduce": verify, **gathers},
    }


def is_lean(case: Case, found: dict) -> bool:
    """Whether a round says no more than it has to; XLA may say it in fewer words."""
    allowed = needed(case)
    return all(
        count <= allowed.get(part, {}).get(kind, 0)
        for part, kinds in found.items()
        for kind, count in kinds.items()
    )


def largest(case: Case, field: str, step: int, measured: Callable[[Case], dict]) -> int | None:
    """The largest number of rows or bytes of context that fits, a multiple of `step`.

    Memory grows along a line, so two programs tell where it meets the limit. The program there is
    compiled, and if it is too large, others an eighth smaller until one fits.

    Args:
      case: one that fits.
      field: "rows" or "context".
      step: what it is a multiple of.
      measured: the row of a case.
    """
    low = getattr(case, field)
    sizes = {n: measured(dataclasses.replace(case, **{field: n})) for n in (low, 2 * low)}
    if not sizes[low]["fits"]:
        return None
    if not sizes[2 * low]["fits"]:
        return low
    first, second = (row["bytes_a_device"] for row in sizes.values())
    room = PODS[case.pod].memory - first
    tried = low + math.floor(room / max((second - first) / low, 1))
    while tried > 2 * low:
        tried = tried // step * step
        if measured(dataclasses.replace(case, **{field: tried}))["fits"]:
            return tried
        tried = tried * 7 // 8
    return 2 * low


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="everything; writes results/")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    args = parser.parse_args()
    path = RESULTS / "pods.json"
    known = json.loads(path.read_text()) if args.full and path.exists() else {}
    failed, limits = [], {}

    def measured(case: Case) -> dict:
        if case.name not in known:
            known[case.name] = compile_case(case)
            print(case.name, known[case.name], flush=True)
            if args.full:
                path.write_text(json.dumps(known, indent=1) + "\n")
                path.with_suffix(".md").write_text(table(known, limits))
        return known[case.name]

    chosen = [case for case in cases(args.full) if args.only in case.name]
    for case in chosen:
        row = measured(case)
        talks = case.what != TRAIN and not is_lean(case, row.get("collectives", {}))
        if talks or not row["fits"]:
            failed.append(case.name)
    for case in chosen if args.full else ():
        rows = largest(case, "rows", 1, measured)
        limits[case.name] = {"rows": rows, "context": largest(case, "context", 256, measured)}
        path.with_suffix(".md").write_text(table(known, limits))
    for name in failed:
        print("FAIL", name)
    return int(bool(failed))


def table(known: dict, limits: dict) -> str:
    """The cases that were compiled, one a line, as Markdown."""
    lines = [
        f"Compiled without the hardware by `make aot-full`, jax {jax.__version__}. GiB of one "
        "device. Collectives in the text of the program, a loop's body counted once: in the draft "
        "+ in the rest. Milliseconds by XLA's cost model, which knows TPUs only: of a round what "
        "it expects, of a step its operations at the device's peak.",
        "",
        "| program | GiB | of them arguments | collectives | ms | most rows a part | most bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in cases(full=True):
        if case.name not in known:
            continue
        row = known[case.name]
        limit = limits.get(case.name, {})
        size = [f"{row[key] / GIB:.2f}" for key in ("bytes_a_device", "arguments") if key in row]
        spoken = row.get("collectives", {})
        said = " + ".join(str(sum(spoken.get(part, {}).values())) for part in ("draft", "rest"))
        ms = f"{row['seconds'] * 1e3:.2f}" if "seconds" in row else ""
        cells = [case.name, *(size or ["too large", ""]), said, ms]
        cells += [str(limit.get(key, "")) for key in ("rows", "context")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
