"""Where the time of decoding goes on a CPU, by XLA's own trace.

Every thunk is assigned to a network by the `op_name` of its HLO instruction. At each instant the
time is split evenly among the thunks in flight; instants without one are the executor's own.
"""

import collections
import dataclasses
import itertools
import os
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator

import jax

PARTS = (
    "draft", "patcher", "encoder", "closing patches", "global", "decoder", "acceptance and loop",
)  # fmt: skip
GAP = "between thunks"
_CONTAINERS = ("while", "call", "conditional")


def dump_to(scratch: pathlib.Path) -> None:
    """Makes XLA write down what it compiles: the names of thunks. Call it before JAX runs."""
    os.environ["XLA_FLAGS"] = " ".join([
        os.environ.get("XLA_FLAGS", ""), f"--xla_dump_to={scratch / 'hlo'}",
        "--xla_dump_hlo_as_text", "--xla_dump_hlo_module_re=.*advance.*",
    ])  # fmt: skip


def profile(decode: Callable[[], object], count: int, scratch: pathlib.Path) -> dict[str, dict]:
    """Milliseconds and thunks by part, from a trace of the decoding program.

    Args:
      decode: runs the program; it has run before.
      count: number of rounds, or bytes, that it runs; what is returned is per one of them.
      scratch: what `dump_to` was given.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        with jax.profiler.trace(directory, profiler_options=options):
            decode()
        (path,) = pathlib.Path(directory).rglob("*.xplane.pb")
        thunks = list(traced_thunks(jax.profiler.ProfileData.from_file(str(path))))
    names = operation_names(scratch / "hlo", {thunk.operation for thunk in thunks})
    leaves = [thunk for thunk in thunks if not thunk.operation.startswith(_CONTAINERS)]
    seconds, number = collections.Counter(), collections.Counter()
    parts = [part_of(names.get(thunk.operation, "")) for thunk in leaves]
    number.update(parts)
    for part, nanoseconds in shares(leaves, parts):
        seconds[part] += nanoseconds
    return {
        "ms": {part: seconds[part] / count / 1e6 for part in (*PARTS, GAP)},
        "thunks": {part: number[part] / count for part in PARTS},
    }


@dataclasses.dataclass(frozen=True)
class Thunk:
    """One run of one HLO instruction, in nanoseconds."""

    operation: str
    begin: float
    end: float


def traced_thunks(data: jax.profiler.ProfileData) -> Iterator[Thunk]:
    """The thunks of the decoding program. One that runs elsewhere ends at its `end:` event."""
    begun, ends = [], {}
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if event.name.startswith("end: "):
                    ends[stats.get("_c")] = event.start_ns
                elif stats.get("hlo_module") == "jit__advanced":
                    begun.append((event, stats.get("_p")))
    for event, key in begun:
        end = max(event.end_ns, ends.get(key, 0))
        yield Thunk(event.name, event.start_ns, end)


def operation_names(directory: pathlib.Path, operations: set[str]) -> dict[str, str]:
    """`op_name` by instruction, from the HLO dump that holds most of `operations`."""
    dumps = directory.glob("*advance*cpu_after_optimizations.txt")
    programs = [named_instructions(path.read_text()) for path in dumps]
    return max(programs, key=lambda names: len(operations & names.keys()), default={})


def named_instructions(hlo: str) -> dict[str, str]:
    """`op_name` by instruction; one without (every product) is named as what it computes with."""
    names = {}
    for line in hlo.splitlines():
        found = re.match(r"\s+(?:ROOT )?%(\S+) = ", line)
        if not found or "get-tuple-element(" in line or " constant(" in line:
            continue
        own = re.search(r'op_name="([^"]*/[^"]*)"', line)
        operands = re.findall(r"%([\w.-]+)", line[found.end() :])
        inherited = (names[operand] for operand in operands if names.get(operand))
        names[found.group(1)] = own.group(1) if own else next(inherited, "")
    return names


def part_of(name: str) -> str:
    """The part of a round that an `op_name` belongs to."""
    if "/draft/" in name:
        return "draft"
    if "patcher" in name:
        return "patcher"
    if "global_transformer" in name:
        return "global"
    if "body/while/body" in name:
        return "closing patches"
    if "/encoder" in name or "cross.keys_values" in name:
        return "encoder"
    if "/decoder" in name:
        return "decoder"
    return "acceptance and loop"


def shares(thunks: list[Thunk], parts: list[str]) -> Iterator[tuple[str, float]]:
    """Splits the wall clock evenly among the thunks in flight."""
    changes = [(thunk.begin, 1, part) for thunk, part in zip(thunks, parts, strict=True)]
    changes += [(thunk.end, -1, part) for thunk, part in zip(thunks, parts, strict=True)]
    changes.sort()
    flying = collections.Counter()
    for (now, step, part), (later, _, _) in itertools.pairwise(changes):
        flying[part] += step
        total = flying.total()
        if total == 0:
            yield GAP, later - now
        for name, several in flying.items():
            if several:
                yield name, (later - now) * several / total
