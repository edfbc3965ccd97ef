"""Kernels, and decode loops that use them, compiled for accelerators that are not at hand.

A program that does not compile, or is compiled without its kernel, makes the exit status 1. What
this cannot show: speed, and numbers on the device. "On chip": VMEM or shared memory of one kernel,
as it counts it. GFLOP and GB: the compiler's count for one call or one round of a loop, as if all
slots were seen; it has none for GPUs. Needs the extra `aot`.

    make aot            every kernel at the shapes of the 1B model, shallow decode loops
    make aot-full       at more shapes, with more loops; writes results
"""

import collections
import dataclasses
import functools
import re
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from bytelax_kernels import cuda, dispatch, gpus
from bytelax_kernels.append_attention import Projections, append_attention
from bytelax_kernels.dense import dense
from bytelax_kernels.dense import gpu as gpu_dense
from bytelax_kernels.unmask import Rule, unmask
from bytelax_kernels.unmask import tpu as unmask_tpu
from bytelax_kernels.verify_attention import gpu, tpu
from bytelax_kernels.verify_attention.benchmark import CASES, Case, attend
from bytelax_kernels.verify_attention.inputs import Inputs
from bytelax_kernels.verify_attention.sight import Sight
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from bytelax.models.blt import BLT
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import TransformerConfig
from experiments import study
from experiments.harness import ahead_of_time
from experiments.harness.decode_program import decode_program
from experiments.harness.one_b import one_b
from experiments.study import Column

# How kernels of Mosaic appear in programs; those in CUDA C++ have a target of their own.
CALLS = {"tpu": "tpu_custom_call", "cuda": "mosaic_gpu"}
TPUS = ("v5e", "v6e", "v5p")
OTHER_CARDS = ("a100", "b200")
NAMES = ("verify_attention", "append_attention", "dense", "unmask")


@dataclasses.dataclass(frozen=True)
class Attention:
    """A call of `verify_attention`."""

    case: Case = Case()
    dtype: str = "bfloat16"
    sharded: bool = False  # under `jax.shard_map`: rows over two devices, heads over two
    kernels = frozenset({"verify_attention"})

    def inputs(self) -> Inputs:
        batch, window, heads, kv_heads, slots, dim, _, tree = self.case
        row = jax.ShapeDtypeStruct((batch, window), jnp.int32)
        newest = jax.ShapeDtypeStruct((batch,), jnp.int32)
        cells = jax.ShapeDtypeStruct((batch, window, window), jnp.bool_) if tree else None
        queries = jax.ShapeDtypeStruct((batch, window, heads, dim), self.dtype)
        shape = (batch, kv_heads, slots, dim)
        if dispatch.platform() == "tpu":
            shape = (batch, slots, kv_heads * dim)
        cache = jax.ShapeDtypeStruct(shape, self.dtype)
        return Inputs(queries, cache, cache, Sight(row, row, newest, cells))

    def on_chip_bytes(self, platform):
        if self.sharded:
            return None
        if platform == "cuda":
            return gpu.shared_bytes(self.case.dim)
        return tpu.vmem_bytes(self.inputs(), tpu.block_size(self.inputs()))

    def program(self, mesh):
        args = tuple(self.inputs())
        if not self.sharded:
            return attend, args, (P(),) * 4
        by_head = P("data", None, "tensor")
        cache = by_head if args[1].ndim == 3 else P("data", "tensor")
        specs = (by_head, cache, cache, P("data"))
        split = {"mesh": mesh, "in_specs": specs, "out_specs": by_head, "check_vma": False}
        return jax.shard_map(attend, **split), args, specs


@dataclasses.dataclass(frozen=True)
class Append:
    """A call of `append_attention`."""

    batch: int = 1
    window: int = 9
    heads: int = 16
    slots: int = 528
    dim: int = 64
    dtype: str = "bfloat16"
    sharded = False
    kernels = frozenset({"append_attention"})

    def on_chip_bytes(self, platform):
        return None

    def program(self, mesh):
        def of(*shape, dtype=jnp.int32):
            return jax.ShapeDtypeStruct((self.batch, *shape), dtype)

        row = of(self.window)
        projections = Projections(
            of(self.window, self.heads, 3, self.dim, dtype=self.dtype),
            row,
            jax.ShapeDtypeStruct((self.dim // 2,), jnp.float32),
        )
        cache = of(self.heads, self.slots, self.dim, dtype=self.dtype)

        def attend(projections, keys, values, positions, first, last, newest):
            return append_attention(
                projections, keys, values,
                positions=positions, first=first, last=last, newest=newest,
            )  # fmt: skip

        return attend, (projections, cache, cache, row, row, row, of()), (P(),) * 7


@dataclasses.dataclass(frozen=True)
class Product:
    """A call of `dense`, with a norm."""

    rows: int = 9
    dim: int = 1024
    columns: int = 3072
    gated: bool = False
    dtype: str = "bfloat16"
    sharded = False
    kernels = frozenset({"dense"})

    def on_chip_bytes(self, platform):
        return None

    def program(self, mesh):
        features = (2, self.columns // 2) if self.gated else (self.columns,)
        shapes = (self.rows, self.dim), (self.dim, *features), (self.dim,)
        rows, kernel, scale = (jax.ShapeDtypeStruct(s, self.dtype) for s in shapes)
        panels = jax.eval_shape(functools.partial(gpu_dense.Panels.of, gated=self.gated), kernel)

        def multiply(x, panels, scale):
            return dense(x, panels, scale=scale, eps=1e-5, gated=self.gated)

        return multiply, (rows, panels, scale), (P(),) * 3


@dataclasses.dataclass(frozen=True)
class Block:
    """A call of `unmask`."""

    rule: str
    batch: int = 8
    cells: int = 16
    drawn: bool = False
    sharded = False
    kernels = frozenset({"unmask"})

    def on_chip_bytes(self, platform):
        return unmask_tpu.vmem_bytes((1, self.cells, 260)) if platform == "tpu" else None

    def program(self, mesh):
        cell = (self.batch, self.cells)
        logits = jax.ShapeDtypeStruct((*cell, 260), jnp.float32)
        ids, masked = (jax.ShapeDtypeStruct(cell, dtype) for dtype in (jnp.int32, jnp.bool_))

        def fill(logits, ids, masked, drawn):
            return unmask(logits, ids, masked, drawn=drawn, rule=Rule(self.rule, 0.7))

        return fill, (logits, ids, masked, ids if self.drawn else None), (P(),) * 4


@dataclasses.dataclass(frozen=True)
class Loop:
    """The decode loop of one method, batch 8, in buffers of 2048 bytes.

    On the 1B model with fewer layers; early exit on a byte transformer of width 768.
    """

    method: str
    layers: int = 2  # of each stack at most
    sharded = False

    @property
    def kernels(self):
        block = {"unmask"} if self.method.startswith("blt-d") else set()
        cross = set() if self.method == "early-exit" else {"cross_read", "cross_write"}
        return {"verify_attention", "append_attention", "dense"} | block | cross

    def on_chip_bytes(self, platform):
        return None

    def program(self, mesh):
        decode, args = decode_program(self._module(), self.method, batch=8, capacity=2048)
        return decode, args, (P(),) * 2

    def _module(self):
        if self.method != "early-exit":
            return BLT(one_b(self.layers, block_size=8 * self.method.startswith("blt-d")))
        sizes = {"heads": 12, "kv_heads": 12, "head_dim": 64, "ffn_dim": 2048}
        return ByteLM(ByteLMConfig(trunk=TransformerConfig(dim=768, layers=self.layers, **sizes)))


KERNELS = {
    "attention, patcher": Attention(Case(heads=12, kv_heads=12), dtype="float32"),
    "attention, local": Attention(),
    "attention, global": Attention(Case(slots=4128, dim=128)),
    "attention, tree": Attention(Case(window=32, slots=4128, tree=True)),
    "attention, sharded": Attention(Case(slots=4128), sharded=True),
    "append, local": Append(),
    "append, patcher": Append(heads=12, dtype="float32"),
    "product, a row": Product(rows=1),
    "product, gated": Product(columns=5632, gated=True),
    "product, patcher": Product(dim=768, columns=2304, dtype="float32"),
    "unmask, confidence": Block("confidence"),
    "unmask, entropy, drawn": Block("entropy", drawn=True),
}
MORE = {
    **{
        f"attention, local, W {window}, B {batch}": Attention(Case(batch, window))
        for window in (1, 17, 32)
        for batch in (1, 64)
    },
    **{f"attention, {name}": Attention(case) for name, case in CASES.items()},
    "attention, one key head": Attention(Case(window=4, kv_heads=1, slots=8192, dim=128)),
    "unmask, 32 cells": Block("entropy-but-one", cells=32),
    "loop, blt-d": Loop("blt-d"),
}
LOOPS = {f"loop, {name}": Loop(name) for name in ("blt-s", "blt-dv", "early-exit")}
# Kernels that there are not for a chip.
WITHOUT = {
    **dict.fromkeys(TPUS, frozenset(gpus.CUDA.kernels)),
    "a100": frozenset({*gpus.MOSAIC.kernels, *gpus.CUDA.kernels}),
    "b200": frozenset({"verify_attention", "unmask"}),
}
# Whether they compile at all: a kernel for Hopper would end the process.
ON_OTHER_CARDS = {KERNELS["unmask, entropy, drawn"], LOOPS["loop, blt-s"]}
# Kernels that other programs replace on the H200. XLA's run for attention in float32, for the rules
# of `unmask` that it compiles to as few kernels, and for products of many rows;
# `append_attention` for all attention of a byte transformer.
XLA_RUNS = {
    ("h200", KERNELS["attention, patcher"]): {"verify_attention"},
    ("h200", KERNELS["unmask, confidence"]): {"unmask"},
    ("h200", LOOPS["loop, blt-dv"]): {"unmask", "dense"},
    ("h200", LOOPS["loop, early-exit"]): {"verify_attention"},
    ("h200", MORE["loop, blt-d"]): {"unmask"},
}


COLUMNS = [
    Column("program", "program"),
    Column("for", "chip"),
    Column("kernels", "kernels"),
    Column("on chip, KiB", "on_chip_kib", ".0f"),
    Column("temporary, MiB", "temporary_mib", ".1f"),
    Column("GFLOP", "gflop", ".3f"),
    Column("GB", "gb", ".3f"),
    Column("right", "ok"),
]


def compile_for(chip: str, case) -> dict:
    """Compiles for one device of this kind; says what the program needs."""
    platform = ahead_of_time.platform(chip)
    devices = ahead_of_time.devices(platform, ahead_of_time.CHIPS[chip], card=chip)
    shape = (2, 2) if case.sharded else (1, 1)
    devices = np.array(devices[: shape[0] * shape[1]]).reshape(shape)
    mesh = Mesh(devices, ("data", "tensor"))
    with ahead_of_time.tracing(chip):
        function, args, specs = case.program(mesh)
        begin = time.perf_counter()
        compiled = ahead_of_time.compiled(function, args, mesh=mesh, specs=specs)
    found = kernels_in(compiled.as_text(), CALLS[platform])
    wanted = case.kernels - XLA_RUNS.get((chip, case), set()) - WITHOUT.get(chip, frozenset())
    if reason := cuda.why_not():  # XLA runs what there is no `nvcc` for
        print(f"{', '.join(gpus.CUDA.kernels)}: {reason}")
        wanted -= set(gpus.CUDA.kernels)
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
    on_chip = case.on_chip_bytes(platform) if wanted else None
    return {
        "ok": set(found) == wanted,
        "kernels": ", ".join(f"{count} {name}" for name, count in found.items()) or "XLA's",
        "on_chip_kib": on_chip / 2**10 if on_chip else None,
        "temporary_mib": memory.temp_size_in_bytes / 2**20,
        "gflop": cost["flops"] / 1e9 if cost.get("flops") else None,
        "gb": cost["bytes accessed"] / 1e9 if cost.get("bytes accessed") else None,
        "compile_seconds": time.perf_counter() - begin,
    }


def kernels_in(program: str, call: str) -> collections.Counter:
    """How many calls of each kernel a compiled program holds."""
    calls = re.findall(f'custom_call_target="{call}.*?op_name="([^"]*)"', program)
    parts = [call.split("/") for call in calls]
    return collections.Counter(
        next((part for part in reversed(names) if part in NAMES), "unknown") for names in parts
    ) + collections.Counter(re.findall(r'custom_call_target="bytelax_(\w+)_gpu"', program))


def programs(full: bool) -> dict:
    """The programs by name."""
    return KERNELS | LOOPS | (MORE if full else {})


def measure(setting: dict) -> dict:
    """The row of a program and a chip."""
    name, chip = setting["program"], setting["chip"]
    try:
        row = compile_for(chip, programs(full=True)[name])
    except Exception as error:  # of any kind: the rest of the table still counts
        row = {"ok": False, "kernels": f"{type(error).__name__}: {str(error)[:300]}"}
    print("ok  " if row["ok"] else "FAIL", chip.ljust(5), name.ljust(28), row, flush=True)
    return row


def main() -> int:
    parser = study.parser(__doc__)
    parser.add_argument("--full", action="store_true", help="the whole matrix; writes results")
    parser.add_argument("--only", default="", help="programs whose name holds this")
    parser.add_argument(
        "--chips", nargs="+", default=list(ahead_of_time.CHIPS), choices=list(ahead_of_time.CHIPS)
    )
    options = parser.parse_args()
    ahead_of_time.prepare()
    settings = [
        {"program": name, "chip": chip}
        for name, case in programs(options.full).items()
        for chip in options.chips
        if options.only in name and is_compiled(case, chip)
    ]
    if options.smoke:
        settings = [{"program": "unmask, confidence", "chip": "v5e"}]
    if options.full or options.smoke:
        rows = study.run("compile_kernels", options, settings, measure, timed=False)
    else:
        rows = [measure(setting) for setting in settings]
    return int(not all(row["ok"] for row in rows))


def is_compiled(case, chip: str) -> bool:
    """Whether a chip has the program's kernels, and has not been left out to save time."""
    left_out = {Loop: ("v6e", "v5p"), Append: TPUS, Product: TPUS}.get(type(case), ())
    return chip not in left_out and (chip not in OTHER_CARDS or case in ON_OTHER_CARDS)


if __name__ == "__main__":
    sys.exit(main())
