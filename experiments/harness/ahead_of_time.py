"""Compiling for accelerators that are not there: needs the extra `aot`."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
from bytelax_kernels.dispatch import traced_for
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bytelax.models import weight_layouts

CHIPS = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "v5p": "v5p:2x2x1", "h200": "1x1x4"}

# What XLA has to know of the device, in its own words.
_H200 = """
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


def devices(platform: str, topology: str) -> list[jax.Device]:
    """The devices of a pod, to compile for.

    Args:
      platform: "tpu", or "cuda" for H200s.
      topology: as the platform's compiler names it, "v5e:2x2" or "1x1x4".
    """
    which = {"topology_name": topology}
    if platform == "cuda":
        which = {"target_config": _H200, "topology": topology}
    return topologies.get_topology_desc(platform=platform, **which).devices


def platform(chip: str) -> str:
    """The platform of one of `CHIPS`, as XLA names it."""
    return "cuda" if chip == "h200" else "tpu"


def tracing(platform: str) -> contextlib.AbstractContextManager[None]:
    """A context in which programs are traced for a platform, as the engine traces them."""
    return traced_for("gpu" if platform == "cuda" else platform)


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
            place = weight_layouts.place_of(path, x.shape, place)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)

    lie = [
        jax.tree_util.tree_map_with_path(functools.partial(lying, spec=spec), part)
        for part, spec in zip(args, specs, strict=True)
    ]
    traced = jax.jit(function, **options).trace(*lie)
    return traced.lower(lowering_platforms=(where,)).compile()
