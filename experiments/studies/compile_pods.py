"""Training steps and rounds of decoding, compiled for whole pods that are not at hand.

GiB are of one device. Collectives are those in the text of the program, in the draft and in the
rest. Milliseconds: the operations that XLA counts over the peak of the device's data sheet, which
is no forecast: nearly every program waits for memory or the network. A loop's body is counted once.
"Most rows" with the bytes of the line, and "most bytes" with its rows, are the largest that were
compiled and fit: an eighth more might. A program that does not compile, does not fit, or
communicates more than it has to makes the exit status 1. Needs the extra `aot`.

    make aot-pods       a layer of each stack, the smallest pod of each kind
    make aot-full       whole models, all pods, and what just fits; writes results, in hours
"""

import collections
import dataclasses
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.extend.core

from bytelax.pods import sharding
from bytelax.training.metrics import peak_flops
from experiments import study
from experiments.harness import ahead_of_time
from experiments.harness.pod_programs import decoding_round, training_step
from experiments.harness.pods import GIB, PODS, TRAIN, Case, Pod, cases, mesh_of
from experiments.study import Column

# As a compiled program names them, and as a traced one does.
_KINDS = {
    "all-reduce": ("psum", "psum_invariant", "pmax", "pmin"),
    "all-gather": ("all_gather", "all_gather_invariant"),
    "reduce-scatter": ("reduce_scatter",),
    "all-to-all": ("all_to_all", "ragged_all_to_all"),
    "collective-permute": ("ppermute",),
    "collective-broadcast": ("pbroadcast",),
}
COLUMNS = [
    Column("program", "program"),
    Column("GiB", "gib", ".2f"),
    Column("of them arguments", "arguments_gib", ".2f"),
    Column("collectives in the draft", "in_draft"),
    Column("in the rest", "in_rest"),
    Column("ms of operations", "ms", ".2f"),
    Column("most rows a part", "most_rows"),
    Column("most bytes", "most_bytes", ",d"),
]
_KIND_OF = {primitive: kind for kind, names in _KINDS.items() for primitive in names}


def compile_case(case: Case) -> dict:
    """Compiles; says what a device holds, what it says to others, and what XLA counts of its work.

    A program that is too large for the devices is a row with the compiler's word for it.
    """
    mesh, begin = mesh_of(case), time.perf_counter()
    make = training_step if case.what == TRAIN else decoding_round
    try:
        program, args = make(case, mesh)
        traced = program.trace(*args)
        compiled = traced.lower(lowering_platforms=(PODS[case.pod].platform,)).compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        why = str(error).splitlines()[0][:300]
        return {"fits": False, "error": why}
    memory, text = compiled.memory_analysis(), compiled.as_text()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes
    held += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    row = {
        "devices": case.mesh.size,
        "rows": case.rows * sharding.batch_shards(mesh),
        "bytes_a_device": held,
        "state": sum(map(_bytes_a_device, jax.tree.leaves(args[0]))),
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "fits": held < PODS[case.pod].memory,
        "asked": asked(traced.jaxpr),
        "collectives": collectives(text),
        "whole_table": holds_whole_table(case, text),
        "seconds": seconds_at_peak(compiled.cost_analysis() or {}, PODS[case.pod]),
    }
    return row | {"compile_seconds": time.perf_counter() - begin}


def _bytes_a_device(x: jax.ShapeDtypeStruct) -> int:
    return math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize


def seconds_at_peak(cost: Mapping[str, float], pod: Pod) -> dict[str, float]:
    """How long a device at its peak has with the operations, and with the bytes, that XLA counts.

    XLA counts the body of a loop once, and nothing of what it does not know, as kernels. What it
    counts none of is left out.

    Args:
      cost: a compiled program's `cost_analysis()`.
      pod: the devices.
    """
    peaks = {"flops": peak_flops(pod.kind), "bytes accessed": pod.bandwidth}
    return {name: cost[name] / peak for name, peak in peaks.items() if cost.get(name, 0) > 0}


def asked(jaxpr: Any, part: str = "rest") -> dict[str, dict[str, int]]:
    """How often a traced program asks for each kind of exchange, in its draft and in the rest.

    What stands in a loop counts once; every branch of a conditional counts.

    Args:
      jaxpr: `jax.jit(f).trace(...).jaxpr`.
      part: what counts as not in the draft.
    """
    found = collections.defaultdict(collections.Counter)
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        names = str(equation.source_info.name_stack).split("/")
        here = "draft" if "draft" in names else part
        if equation.primitive.name in _KIND_OF:
            found[here][_KIND_OF[equation.primitive.name]] += 1
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            for within, kinds in asked(inner, here).items():
                found[within].update(kinds)
    return _sorted(found)


def _sorted(found):
    return {part: dict(sorted(kinds.items())) for part, kinds in sorted(found.items())}


def collectives(text: str) -> dict[str, dict[str, int]]:
    """How often a compiled program talks between devices, by kind, in its draft and in the rest.

    What stands in a loop counts once. So do the pieces that a compiler makes of one exchange, to
    overlap it with other work: they all bear the name of the operation that asked for it. Two that
    were asked for under one name count once too: `asked` tells them apart.
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
    return _sorted(found)


def holds_whole_table(case: Case, text: str) -> bool:
    """Whether a device has a whole table of hash embeddings, or its gradient, at any time."""
    config = case.config()
    return f"[{config.hashing.rows},{config.encoder.dim}]" in text


def needed(case: Case) -> dict[str, dict[str, int]]:
    """The most that a round has to say: nothing without `tensor`; with it one sum behind each
    attention and each SwiGLU that is split, the parts of the hash embeddings, and what was drafted
    and emitted."""
    if case.mesh.tensor == 1:
        return {}
    c = case.config()
    reads_encoder = c.decoder_input == "encoder"
    encoder, decoder = 2 * c.encoder.layers, 2 * c.decoder.layers + c.decoder_cross_layers
    verify = encoder + decoder + 2 * c.global_transformer.layers + 1  # and of the pooling
    agreed = 2
    filled = 2 * decoder + agreed  # in the first pass and in further ones
    draft = decoder + encoder * reads_encoder if case.what == "blt-s" else filled
    gathers = {"all-gather": 1}
    return {
        "draft": {"all-reduce": draft, **(gathers if reads_encoder else {})},
        "rest": {"all-reduce": verify + agreed, **gathers},
    }


def is_lean(case: Case, row: Mapping) -> bool:
    """Whether a round asks for no more than it has to say, and XLA says no more than was asked.

    Of a training step, whether every device keeps to its part of the hash embeddings.
    """
    if case.what == TRAIN:
        return not row["whole_table"]
    return _within(row["asked"], needed(case)) and _within(row["collectives"], row["asked"])


def _within(found, allowed):
    return all(
        count <= allowed.get(part, {}).get(kind, 0)
        for part, kinds in found.items()
        for kind, count in kinds.items()
    )


def largest(case: Case, field: str, step: int, measured: Callable[[Case], dict]) -> int | None:
    """The largest number of rows, or of bytes of context, that was found to fit.

    What does not lie in parameters grows along a line, so one program tells roughly where it meets
    the limit, and the one compiled there tells better. An eighth or less is not looked for.

    Args:
      case: the least.
      field: "rows" or "context".
      step: what it is a multiple of.
      measured: the row of a case.

    Returns:
      None where not even `case` fits.
    """
    row, found = measured(case), getattr(case, field)
    if not row["fits"]:
        return None
    fixed, most = row["state"], math.inf if field == "rows" else case.config().max_bytes
    each, too_many = (row["bytes_a_device"] - fixed) / found, math.inf
    while True:
        room = PODS[case.pod].memory - row["bytes_a_device"]
        tried = min(found + room / max(each, 1), most)
        if tried >= too_many:  # the line was too low: halve what is left
            tried = (found + too_many) / 2
        tried = math.floor(tried) // step * step
        if tried <= found * 17 / 16:
            return found
        more = measured(dataclasses.replace(case, **{field: tried}))
        if more["fits"]:
            each = (more["bytes_a_device"] - row["bytes_a_device"]) / (tried - found)
            row, found = more, tried
        else:
            too_many = tried


def measure(case: Case, known: dict[str, dict], *, limits: bool) -> dict:
    """The row of a case.

    Args:
      case: the program.
      known: what `compile_case` found, by the name of the case; it is filled.
      limits: whether to look for the most rows and bytes that fit.
    """

    def compiled(case):
        if case.name not in known:
            known[case.name] = compile_case(case)
            print(case.name, known[case.name], flush=True)
        return known[case.name]

    row = compiled(case)
    spoken, seconds = row.get("collectives", {}), row.get("seconds", {})
    found = {
        "fits": row["fits"],
        "lean": row["fits"] and is_lean(case, row),
        "gib": row["bytes_a_device"] / GIB if "bytes_a_device" in row else None,
        "arguments_gib": row["arguments"] / GIB if "arguments" in row else None,
        "in_draft": sum(spoken.get("draft", {}).values()),
        "in_rest": sum(spoken.get("rest", {}).values()),
        "ms": 1e3 * seconds["flops"] if "flops" in seconds else None,
    }
    if limits:
        found["most_rows"] = largest(case, "rows", 1, compiled)
        found["most_bytes"] = largest(case, "context", 256, compiled)
    return found


def main() -> int:
    parser = study.parser(__doc__)
    parser.add_argument("--full", action="store_true", help="everything; writes results")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    options = parser.parse_args()
    ahead_of_time.prepare()
    chosen = {case.name: case for case in cases(options.full) if options.only in case.name}
    known: dict[str, dict] = {}

    def row(setting):
        return measure(chosen[setting["program"]], known, limits=options.full)

    settings = [{"program": name} for name in chosen][: 1 if options.smoke else None]
    if options.full:
        rows = study.run("compile_pods", options, settings, row, timed=False, code=study.TRAINING)
    else:
        rows = [{"setting": setting} | row(setting) for setting in settings]
    failed = [each["setting"]["program"] for each in rows if not each["fits"] or not each["lean"]]
    for name in failed:
        print("FAIL", name)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
