"""Reads the optimized program of a TPU or GPU: its operations, and the loops they are in."""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_SHAPE = re.compile(r"\b(pred|bf16|[sufc]\d+)\[([\d,]*)\]")

# These occupy no unit of the device, or are the two ends of a transfer beside other operations.
_FREE = frozenset(
    "parameter constant get-tuple-element tuple bitcast after-all partition-id replica-id "
    "opt-barrier optimization-barrier add-dependency copy-start copy-done slice-start slice-done "
    "async-start async-update async-done".split()
)
_FREE_CALLS = ("ConcatBitcast", "AllocateBuffer")


class Loop(NamedTuple):
    """A loop around operations."""

    name: str  # as JAX names it, "jit(decode)/while/body/draft/while"
    trips: int | None  # where the compiler knows


class Operation(NamedTuple):
    """An operation that the device runs: on a GPU a kernel or a copy."""

    name: str
    opcode: str
    shape: str  # of the result, with its layout
    line: str  # as the program has it
    loops: tuple[Loop, ...]  # outermost first

    @property
    def bytes(self) -> int:
        """Of the result, without padding."""
        return sum(
            math.prod(int(axis) for axis in axes.split(",") if axis) * _width(dtype)
            for dtype, axes in _SHAPE.findall(self.shape)
        )

    @property
    def cycles(self) -> int:
        """The compiler's estimate for a TPU; 0 where it has none: scatters, gathers, kernels."""
        found = re.search(r'"estimated_cycles":"(\d+)"', self.line)
        return int(found[1]) if found else 0

    @property
    def moves(self) -> bool:
        """Whether it only copies or transposes its operand."""
        return self.opcode in ("copy", "transpose") or (
            self.opcode == "fusion"
            and re.fullmatch(r"(wrapped_)?(copy|transpose)(_fusion)?[.\d]*", self.name) is not None
        )

    @property
    def scatters(self) -> bool:
        """Whether it writes to places that the data chooses."""
        return "scatter" in self.name or self.opcode == "scatter"


def operations(text: str, *, branch: Callable = min) -> list[Operation]:
    """The operations of a program, those of loops once.

    Args:
      text: of the optimized program.
      branch: of the branches of a conditional, whether those of the shortest (`min`) or of the
        longest (`max`).
    """
    computations, entry = _computations(text)
    found = []

    def walk(name, loops):
        mine = []
        for line in computations[name]:
            instruction = _INSTRUCTION.match(line)
            if instruction is None:
                continue
            name, (shape, rest) = instruction[1], _split_shape(instruction[2])
            opcode = re.match(r"[\w\-]*", rest)[0]
            if opcode == "while":
                trips = re.search(r'known_trip_count":\{"n":"(\d+)"', rest)
                named = re.search(r'op_name="([^"]*)"', rest)
                loop = Loop(named[1] if named else "", int(trips[1]) if trips else None)
                for part in ("body", "condition"):
                    inside = re.search(rf"{part}=%?([\w.\-]+)", rest)
                    mine += walk(inside[1], (*loops, loop))
            elif opcode == "conditional":
                branches = re.search(r"branch_computations=\{([^}]*)\}", rest)
                names = (
                    branches[1].split(",")
                    if branches
                    else re.findall(r"(?:true|false)_computation=%?([\w.\-]+)", rest)
                )
                mine += branch((walk(part.strip().lstrip("%"), loops) for part in names), key=len)
            elif opcode == "call":
                mine += walk(re.search(r"to_apply=%?([\w.\-]+)", rest)[1], loops)
            elif opcode not in _FREE and not any(f'"{call}"' in rest for call in _FREE_CALLS):
                mine.append(Operation(name, opcode, shape, line, loops))
        return mine

    found += walk(entry, ())
    return found


def _computations(text):
    computations, entry, lines = {}, None, None
    for line in text.splitlines():
        begin = _COMPUTATION.match(line)
        if begin:
            lines = computations.setdefault(begin[2], [])
            entry = begin[2] if begin[1] else entry
        elif line.startswith("}"):
            lines = None
        elif lines is not None:
            lines.append(line)
    assert entry is not None
    return computations, entry


def _split_shape(rest):
    """Splits "(s32[], f32[8]{0}) fusion(...)" behind the shape, which may be a tuple."""
    depth = 0
    for index, letter in enumerate(rest):
        depth += (letter == "(") - (letter == ")")
        if letter == " " and not depth:
            return rest[:index], rest[index + 1 :]
    return rest, ""


def _width(dtype):
    return 1 if dtype == "pred" else max(1, int(re.search(r"\d+", dtype)[0]) // 8)
