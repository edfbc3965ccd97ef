"""Compiling for accelerators that are not there: needs the extra `aot`."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
from bytelax_kernels import gpus
from bytelax_kernels.dispatch import traced_for
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bytelax.models import weights

CHIPS = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "v5p": "v5p:2x2x1"}
CHIPS |= dict.fromkeys(("h200", "a100", "b200"), "1x1x4")


class Card(NamedTuple):
    """What XLA has to know of an NVIDIA GPU; sizes in bytes.

    Attributes:
      name: as its driver reports it.
      capability: its compute capability.
      features: whether there are instructions of this capability alone, such as `wgmma`.
      multiprocessors: their number.
      lanes: of float32 in a multiprocessor.
      shared: memory of a multiprocessor that its thread blocks share; a block has 1 KiB less.
      cache: its L2.
      memory: its main memory.
      bandwidth: of the main memory, a second.
      ghz: its clock.
    """

    name: str
    capability: str
    features: bool
    multiprocessors: int
    lanes: int
    shared: int
    cache: int
    memory: int
    bandwidth: int
    ghz: float


CARDS = {
    "h200": Card(
        "NVIDIA H200", "9.0", True, 132, 128, 228 << 10, 50 << 20, 141 << 30, 4_800 * 10**9, 1.98
    ),
    "a100": Card(
        "NVIDIA A100-SXM4-80GB", "8.0", False, 108, 64, 164 << 10, 40 << 20, 80 << 30,
        2_039 * 10**9, 1.41,
    ),
    "b200": Card(
        "NVIDIA B200", "10.0", True, 148, 128, 228 << 10, 126 << 20, 180 << 30, 8_000 * 10**9, 1.97
    ),
}  # fmt: skip
# In the words of XLA.
_CARD = """
gpu_device_info {{
  name: "{card.name}" device_vendor: "NVIDIA Corporation"
  cuda_compute_capability {{ major: {major} {minor} {extension} }}
  core_count: {card.multiprocessors} fpus_per_core: {card.lanes} threads_per_warp: 32
  threads_per_block_limit: 1024 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: {block}
  shared_memory_per_core: {card.shared}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {card.bandwidth} l2_cache_size: {card.cache} device_memory_size: {card.memory}
  clock_rate_ghz: {card.ghz} device_address_bits: 64 pcie_bandwidth: 34359738368
  platform_version: "Compute Capability {card.capability}" dnn_version: "9.12.0"
  driver_version: "13.0.0" runtime_version: "13.0.0" compile_time_toolkit_version: "13.0.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 patch: 0 }}
device_description_str: "{card.name}"
"""


def prepare() -> None:
    """Keeps JAX on the processor, and libtpu from looking for a TPU. Call it before any other."""
    jax.config.update("jax_platforms", "cpu")
    # With the tracebacks of some callers libtpu 0.0.42 never ends: they are no part of a program.
    jax.config.update("jax_traceback_in_locations_limit", 0)
    # Keeps libtpu from asking a cloud about the machine, and lets several processes load it.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")


def devices(platform: str, topology: str, card: str = "h200") -> list[jax.Device]:
    """The devices of a pod, to compile for.

    Args:
      platform: "tpu", or "cuda" for NVIDIA GPUs.
      topology: as the platform's compiler names it, "v5e:2x2" or "1x1x4".
      card: the GPUs, by their name in `CARDS`.
    """
    which = {"topology_name": topology}
    if platform == "cuda":
        which = {"target_config": _described(CARDS[card]), "topology": topology}
    return topologies.get_topology_desc(platform=platform, **which).devices


def _described(card):
    major, minor = card.capability.split(".")
    return _CARD.format(
        card=card, major=major, minor=f"minor: {minor}" if minor != "0" else "",
        extension="feature_extension: ACCELERATED_FEATURES" if card.features else "",
        block=card.shared - 1024,
    )  # fmt: skip


def platform(chip: str) -> str:
    """The platform of one of `CHIPS`, as XLA names it."""
    return "cuda" if chip in CARDS else "tpu"


@contextlib.contextmanager
def tracing(chip: str) -> Iterator[None]:
    """A context in which programs are traced for one of `CHIPS`, as the engine traces them."""
    if chip not in CARDS:
        with traced_for("tpu"):
            yield
        return
    with traced_for("gpu"), gpus.traced_for(CARDS[chip].capability):
        yield


def compiled(
    function: Callable,
    args: Sequence[Any],
    *,
    mesh: Mesh,
    specs: Sequence[PartitionSpec],
    decodes: bool = False,
    **options,
) -> jax.stages.Compiled:
    """Compiles a function for the devices of a mesh.

    Args:
      function: function of pytrees of arrays.
      args: its arguments, as shapes.
      mesh: devices from `devices`.
      specs: how each argument is sharded.
      decodes: whether the engine calls it, which puts kernels on a TPU as products read them.
      **options: of `jax.jit`.
    """
    where = "tpu" if mesh.devices.flat[0].platform == "tpu" else "cuda"

    def lying(path, x, spec):
        place = NamedSharding(mesh, spec)
        if decodes and where == "tpu":
            place = weights.place_of(path, x.shape, place)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)

    lie = [
        jax.tree_util.tree_map_with_path(functools.partial(lying, spec=spec), part)
        for part, spec in zip(args, specs, strict=True)
    ]
    traced = jax.jit(function, **options).trace(*lie)
    return traced.lower(lowering_platforms=(where,)).compile()
