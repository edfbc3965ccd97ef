"""Compiles the kernels and the decode loops that use them for accelerators that are not there.

    make aot            every kernel at the shapes of the 1B model, shallow decode loops
    make aot-full       every kernel at more shapes, whole decode loops; writes results/

Needs the extra `aot`: libtpu and the CUDA plugin compile on a CPU-only machine. A program that
does not compile, or is compiled without its kernel, makes the exit status 1. What this cannot show:
speed, and numbers on the device.
"""

import argparse
import collections
import dataclasses
import functools
import json
import os
import pathlib
import re
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
# Keeps libtpu from asking a cloud about the machine, and lets several processes load it.
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")

import jax
import jax.numpy as jnp
import numpy as np
from bytelax_kernels.unmask import Rule, unmask
from bytelax_kernels.verify_attention import verify_attention
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bytelax import Model, methods
from bytelax.decode import Sampling, Stops, Text, decode, start
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.layers import TransformerConfig
from bytelax.models.patching import PatchingConfig

RESULTS = pathlib.Path(__file__).parent / "results"

# What XLA has to know of the device, in its own words.
H200 = """
gpu_device_info {
  name: "NVIDIA H200" device_vendor: "NVIDIA Corporation"
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  core_count: 132 fpus_per_core: 128 threads_per_warp: 32
  threads_per_block_limit: 1024 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 device_memory_size: 151397597184
  clock_rate_ghz: 1.98 device_address_bits: 64 pcie_bandwidth: 34359738368
  platform_version: "Compute Capability 9.0a" dnn_version: "9.12.0"
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 12 patch: 0 }
device_description_str: "NVIDIA H200"
"""
CHIPS = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "v5p": "v5p:2x2x1", "h200": "1x1x4"}
CALLS = {"tpu": "tpu_custom_call", "cuda": "mosaic_gpu"}


@dataclasses.dataclass(frozen=True)
class Attention:
    """A call of `verify_attention`; the defaults are the 1B model's local stacks."""

    batch: int = 8
    window: int = 9
    heads: int = 16
    kv_heads: int = 16
    dim: int = 64
    slots: int = 528
    dtype: str = "bfloat16"
    tree: bool = False
    sharded: bool = False  # under `jax.shard_map`: rows over two devices, heads over two

    def program(self, mesh):
        row = jax.ShapeDtypeStruct((self.batch, self.window), jnp.int32)
        cache = jax.ShapeDtypeStruct((self.batch, self.kv_heads, self.slots, self.dim), self.dtype)
        queries = jax.ShapeDtypeStruct((*row.shape, self.heads, self.dim), self.dtype)
        seen = {"first": row, "last": row, "newest": jax.ShapeDtypeStruct(row.shape[:1], row.dtype)}
        if self.tree:
            seen["ancestors"] = jax.ShapeDtypeStruct((*row.shape, self.window), jnp.bool_)

        def attend(queries, keys, values, seen):
            return verify_attention(queries, keys, values, **seen)

        args = (queries, cache, cache, seen)
        if not self.sharded:
            return attend, args, (P(),) * 4
        by_head = P("data", None, "tensor")
        specs = (by_head, P("data", "tensor"), P("data", "tensor"), P("data"))
        split = {"mesh": mesh, "in_specs": specs, "out_specs": by_head, "check_vma": False}
        return jax.shard_map(attend, **split), args, specs


@dataclasses.dataclass(frozen=True)
class Block:
    """A call of `unmask`."""

    rule: str
    batch: int = 8
    cells: int = 16
    drawn: bool = False
    sharded = False

    def program(self, mesh):
        cell = (self.batch, self.cells)
        law = jax.ShapeDtypeStruct((*cell, 260), jnp.float32)
        cells = [jax.ShapeDtypeStruct(cell, dtype) for dtype in (jnp.int32, jnp.bool_)]
        how = {"law": law, "uniforms": jax.ShapeDtypeStruct(cell, jnp.float32)}

        def fill(logits, ids, masked, how):
            return unmask(logits, ids, masked, rule=Rule(self.rule, 0.7), **how)

        return fill, (law, *cells, how if self.drawn else {}), (P(),) * 4


@dataclasses.dataclass(frozen=True)
class Loop:
    """The decode loop of one method, batch 8, in buffers of 2048 bytes.

    On the 1B model; early exit on a byte transformer of 12 layers and width 768.
    """

    method: str
    layers: int | None = 2  # of each stack at most
    sharded = False

    def program(self, mesh):
        module, batch, capacity = self._module(), 8, 2048
        ids = jax.ShapeDtypeStruct((batch, capacity), jnp.int32)
        params = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
        params = jax.tree_util.tree_map_with_path(_dtype, params)
        law = Sampling.of(batch)
        method = methods.build(self.method, Model(module, params), law, capacity=capacity)
        both = {"target": params, "drafter": ()}
        parts = {"target": method.target, "drafter": method.drafter}
        decoding = jax.eval_shape(
            functools.partial(start, draft_length=method.draft_length, **parts),
            both,
            Text(ids, jax.ShapeDtypeStruct((batch,), jnp.int32)),
            budget=jax.ShapeDtypeStruct((batch,), jnp.int32),
            seeds=jax.ShapeDtypeStruct((batch,), jnp.uint32),
        )

        def run(params, decoding, law, stops):
            return decode(params, decoding, law=law, stops=stops, accept=method.accept, **parts)

        return run, (both, decoding, law, Stops.of(())), (P(),) * 4

    def _module(self):
        if self.method != "early-exit":
            return BLT(one_b(self.layers, block_size=8 if self.method == "blt-dv" else 0))
        sizes = {"heads": 12, "kv_heads": 12, "head_dim": 64, "ffn_dim": 2048}
        layers = 12 if self.layers is None else min(12, self.layers)
        return ByteLM(ByteLMConfig(trunk=TransformerConfig(dim=768, layers=layers, **sizes)))


def one_b(layers: int | None, *, block_size: int) -> BLTConfig:
    """The released 1B model; with block_size as Fast BLT changes it."""

    def stack(dim, depth, **fields):
        depth = depth if layers is None else min(depth, layers)
        sizes = {"heads": 16, "kv_heads": 16, "head_dim": dim // 16, "ffn_dim": 2816}
        return TransformerConfig(dim=dim, layers=depth, **(sizes | fields))

    patcher = stack(768, 14, heads=12, kv_heads=12, head_dim=64, ffn_dim=2048, window=512)
    return BLTConfig(
        encoder=stack(1024, 1, window=512),
        global_transformer=stack(2048, 25, ffn_dim=5632),
        decoder=stack(1024, 9, window=512),
        patching=PatchingConfig(),
        patcher=ByteLMConfig(trunk=patcher),
        decoder_input="embedding" if block_size else "encoder",
        block_size=block_size,
    )


def _dtype(path, leaf):
    """The entropy model stays in float32."""
    patcher = "patcher" in jax.tree_util.keystr(path)
    return jax.ShapeDtypeStruct(leaf.shape, jnp.float32 if patcher else jnp.bfloat16)


LOOPS = ("blt-s", "blt-dv", "early-exit")
KERNELS = {
    "attention, patcher": Attention(heads=12, kv_heads=12, dtype="float32"),
    "attention, local": Attention(),
    "attention, global": Attention(dim=128, slots=4128),
    "attention, tree": Attention(window=32, slots=4128, tree=True),
    "attention, sharded": Attention(slots=4128, sharded=True),
    "unmask, confidence": Block("confidence"),
    "unmask, entropy, drawn": Block("entropy", drawn=True),
}
MORE = {
    **{
        f"attention, local, W {window}, B {batch}": Attention(window=window, batch=batch)
        for window in (1, 17, 32)
        for batch in (1, 64)
    },
    "attention, grouped": Attention(window=8, heads=32, kv_heads=8, dim=128, slots=8192),
    "attention, one key head": Attention(window=4, heads=16, kv_heads=1, dim=128, slots=8192),
    "unmask, 32 cells": Block("entropy-but-one", cells=32),
}
XLA_ON_GPU = ("attention, patcher",)  # float32: the reference is what runs there


def compile_for(chip: str, case) -> dict:
    """Compiles for one device of this kind; says what the program needs."""
    platform = "cuda" if chip == "h200" else "tpu"
    which = {"target_config": H200, "topology": CHIPS[chip]}
    if platform == "tpu":
        which = {"topology_name": CHIPS[chip]}
    devices = topologies.get_topology_desc(platform=platform, **which).devices
    shape = (2, 2) if case.sharded else (1, 1)
    devices = np.array(devices[: shape[0] * shape[1]]).reshape(shape)
    mesh = Mesh(devices, ("data", "tensor"))
    function, args, specs = case.program(mesh)
    args = tuple(
        jax.tree.map(
            lambda x, spec=spec: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=NamedSharding(mesh, spec)
            ),
            part,
        )
        for part, spec in zip(args, specs, strict=True)
    )
    begin = time.perf_counter()
    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=(platform,))
    compiled = lowered.compile()
    text = compiled.as_text()
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
    return {
        "kernels": len(re.findall(rf'custom_call_target="{CALLS[platform]}', text)),
        "seconds": round(time.perf_counter() - begin, 1),
        "temporary_bytes": memory.temp_size_in_bytes,
        "argument_bytes": memory.argument_size_in_bytes,
        "flops": cost.get("flops"),
        "bytes": cost.get("bytes accessed"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="the whole matrix; writes results/")
    parser.add_argument("--only", default="", help="programs whose name holds this")
    parser.add_argument("--chips", nargs="+", default=list(CHIPS), choices=list(CHIPS))
    args = parser.parse_args()
    loops = {f"loop, {name}": Loop(name, None if args.full else 2) for name in LOOPS}
    cases = {**KERNELS, **(MORE if args.full else {}), **loops}
    table = collections.defaultdict(dict)
    failed = 0
    for name, case in cases.items():
        for chip in args.chips:
            if args.only not in name or (isinstance(case, Loop) and chip in ("v6e", "v5p")):
                continue
            try:
                row = compile_for(chip, case)
                right = row["kernels"] > 0 or (chip == "h200" and name in XLA_ON_GPU)
                row["ok"] = right
            except Exception as error:  # of any kind: the rest of the table still counts
                row = {"ok": False, "error": str(error)[:500]}
            failed += not row["ok"]
            table[name][chip] = row
            print("ok  " if row["ok"] else "FAIL", chip.ljust(5), name.ljust(28), row, flush=True)
    if args.full and not args.only:
        write(table)
    return int(failed > 0)


def write(table: dict) -> None:
    """results/kernels_aot.json and the table of it."""
    (RESULTS / "kernels_aot.json").write_text(
        json.dumps({"jax": jax.__version__, "programs": table}, indent=1) + "\n"
    )
    lines = ["| program | " + " | ".join(CHIPS) + " |", "|---" * (len(CHIPS) + 1) + "|"]
    for name, chips in table.items():
        cells = [_cell(chips[chip]) if chip in chips else "" for chip in CHIPS]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    head = (
        f"Compiled without the hardware by `make aot-full`, jax {jax.__version__}: kernels in the "
        "program, and MiB of temporary memory.\n\n"
    )
    (RESULTS / "kernels_aot.md").write_text(head + "\n".join(lines) + "\n")


def _cell(row: dict) -> str:
    if not row["ok"]:
        return "failed"
    return f"{row['kernels']}, {row['temporary_bytes'] / 2**20:.1f}"


if __name__ == "__main__":
    sys.exit(main())
