"""`append_attention`, the self-attention of a window with the writing of its cache."""

import functools
from typing import Literal

import jax
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels import gpus
from bytelax_kernels.append_attention import reference
from bytelax_kernels.append_attention.inputs import Inputs, Projections
from bytelax_kernels.dispatch import Kernel, call, inference_only, on_gpus, partitioned, platform
from bytelax_kernels.verify_attention.sight import Sight

Implementation = Literal["xla", "gpu", "cpu"]


def append_attention(
    projections: Projections,
    keys: Float[Array, "B K S D"],
    values: Float[Array, "B K S D"],
    *,
    positions: Int[Array, "B W"],
    first: Int[Array, "B W"],
    last: Int[Array, "B W"],
    newest: Int[Array, " B"],
    ancestors: Bool[Array, "B W W"] | None = None,
    block_kv: int | None = None,
    implementation: Implementation | None = None,
) -> tuple[Float[Array, "B W H D"], Float[Array, "B K S D"], Float[Array, "B K S D"]]:
    """Writes a window to a cache, and attends to the cache as `verify_attention` does.

    Where the cache is donated, or carried by a loop, it is changed in place.

    Args:
      projections: queries, keys and values of the window.
      keys, values: the cache before the window, by head.
      positions: position of each entry of the window. That of -1 is not written.
      first, last, newest, ancestors: as in `verify_attention`; the window counts for `newest`.
      block_kv: as in `verify_attention`; the kernels ignore it.
      implementation: as in `verify_attention`; there is no kernel for TPUs. "xla" writes first, and
        then calls `verify_attention`.

    Returns:
      The attended values in the dtype of the projections, and the keys and values of the cache with
      the window.

    Raises:
      ValueError: the named implementation does not support these inputs.
    """
    sight = Sight(first, last, newest, ancestors)
    inputs = Inputs(projections, keys, values, positions, sight)
    return call(
        implementation,
        inputs,
        reference=functools.partial(reference.attention, block_kv=block_kv),
        kernels=_KERNELS if implementation else _kernels_of(platform()),
        split=functools.partial(_split, inputs=inputs),
    )


@functools.cache
def _gpu():
    from bytelax_kernels.append_attention import gpu

    return on_gpus(gpus.CUDA, lambda: (gpu.takes, jax.jit(gpu.attention)))


@functools.cache
def _cpu():
    from bytelax_kernels.append_attention import cpu

    return Kernel(cpu.takes, inference_only(jax.jit(cpu.attention)))


_KERNELS = {"gpu": _gpu, "cpu": _cpu}


def _kernels_of(platform):
    return {name: kernel for name, kernel in _KERNELS.items() if name == platform}


def _split(kernel, inputs):
    """Lets XLA shard the kernel by rows; a cache that is sharded by heads is gathered."""
    cells = "" if inputs.sight.ancestors is None else ", b w c"
    cache, row = "b k s d", "b w"
    rule = f"b w k g d, {row}, f, {cache}, {cache}, {row}, {row}, {row}, b{cells}"
    whole = "w k g d f s c h" if cells else "w k g d f s h"
    return partitioned(kernel, f"{rule} -> b w h d, {cache}, {cache}", whole=whole)
