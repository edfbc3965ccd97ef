"""`verify_attention`, the attention of the parallel verification pass."""

import functools
from typing import Literal

import jax
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels import gpus
from bytelax_kernels.dispatch import Kernel, call, inference_only, on_gpus, partitioned
from bytelax_kernels.verify_attention import reference
from bytelax_kernels.verify_attention.inputs import Cache, Inputs
from bytelax_kernels.verify_attention.sight import Sight

Implementation = Literal["xla", "tpu", "gpu", "cpu", "cudnn"]


def verify_attention(
    queries: Float[Array, "B W H D"],
    keys: Cache,
    values: Cache,
    *,
    first: Int[Array, "B W"],
    last: Int[Array, "B W"],
    newest: Int[Array, " B"],
    ancestors: Bool[Array, "B W W"] | None = None,
    block_kv: int | None = None,
    implementation: Implementation | None = None,
) -> Float[Array, "B W H D"]:
    """Softmax attention of each query over the cached positions `first..last`.

    A cache of S slots is a ring that holds position p in slot `p % S`. `newest` is the latest
    position written in each row, so an overwritten slot counts as the later position. A cache for
    the whole text is a ring that never wraps. Causal, windowed, per-document, per-patch and
    block-bidirectional attention are all intervals of positions.

    A tree is a window whose W cells occupy the W newest positions in any order: cell c is at
    position `newest - W + 1 + c`, whatever its depth. Each query then attends to its interval,
    which ends before the window, and in addition to its ancestors and itself in the window.

    Exactness: the result for a query is bitwise independent of its index in the window, of the
    other queries, and of the contents of slots it does not attend to (if finite), because
    reductions are laid out by slot. A cell of a tree is in another slot than the same byte of a
    linear window, so these two agree only up to rounding; in the kernel for processors, which sums
    in the order of positions, bit for bit. "cudnn" does not give this guarantee.

    The kernels are for inference. Without `implementation`, the derivative is that of the reference
    on every platform.

    Args:
      queries: a window of W queries per row with H heads, unscaled.
      keys: cached keys with K heads, [B, K, S, D] or in lines [B, S, K D], in which the heads of a
        slot follow one another; query head h reads key head `h // (H // K)`. The TPU kernel reads
        lines, that for GPUs heads, and that for processors both: a cache laid out otherwise is
        transposed first.
      values: cached values, laid out as `keys`.
      first: first position that each query attends to, at least 0.
      last: last position that each query attends to, inclusive. The interval is empty if
        `first > last`.
      newest: latest position written in the cache of each row.
      ancestors: `ancestors[b, i, c]` is whether query i of row b also attends to cell c of its
        window.
      block_kv: number of slots that the reference reads at a time; it then skips blocks to which no
        query attends, and the cache must not have wrapped. None reads every slot. The kernels
        ignore this: they choose their own blocks and skip those to which no query of a row attends.
      implementation: None uses the kernel of the platform that the program is compiled for if it
        supports these shapes, and the reference otherwise. "xla" uses the reference, "tpu", "gpu"
        and "cpu" our kernels, and "cudnn" that library.

    Returns:
      The attended values in the dtype of `queries`, computed from float32 scores and sums. They are
      zero for a query that attends to nothing.

    Raises:
      ValueError: the named implementation does not support these inputs.
    """
    inputs = Inputs(queries, keys, values, Sight(first, last, newest, ancestors))
    return call(
        implementation,
        inputs,
        reference=_reference(block_kv),
        derivative=_derivative(block_kv),
        kernels={"tpu": _tpu, "gpu": _gpu, "cpu": _cpu},
        libraries={"cudnn": _cudnn},
        split=functools.partial(_split, inputs=inputs),
    )


# Jitted, so that all layers of a model share one trace.
@functools.cache
def _tpu():
    from bytelax_kernels.verify_attention import tpu

    return Kernel(tpu.takes, inference_only(jax.jit(tpu.attention)))


@functools.cache
def _gpu():
    def load():
        from bytelax_kernels.verify_attention import gpu

        return gpu.takes, jax.jit(gpu.attention)

    return on_gpus(gpus.MOSAIC, load)


@functools.cache
def _cpu():
    from bytelax_kernels.verify_attention import cpu

    return Kernel(cpu.takes, inference_only(jax.jit(cpu.attention)))


@functools.cache
def _cudnn():
    from bytelax_kernels.verify_attention import cudnn

    return Kernel(cudnn.takes, cudnn.attention)


def _split(kernel, inputs):
    """Lets XLA shard a kernel by rows, and by key heads together with their query heads."""
    kv_heads, group = inputs.sizes.kv_heads, inputs.sizes.group
    cells = "" if inputs.sight.ancestors is None else ", b w c"
    if kv_heads > 1 and group > 1:
        heads, sizes = "(k g)", {"g": group} | ({"k": kv_heads} if inputs.in_lines else {})
    else:  # the rule may not split an axis into factors if one is 1
        heads, sizes = ("k" if group == 1 else "g"), {}
    cache = "b k s d"
    if inputs.in_lines:
        cache = "b s (k d)" if kv_heads > 1 else "b s d"
    rule = f"b w {heads} d, {cache}, {cache}, b w, b w, b{cells} -> b w {heads} d"
    whole = [factor for factor in "wgdsc" if factor in rule]  # in order of appearance
    return partitioned(kernel, rule, whole=" ".join(whole), **sizes)


@functools.cache
def _derivative(block_kv):
    """The function to differentiate: the reference with separate axes for rows and heads.

    XLA can then shard them over different axes of a mesh.
    """
    return (
        functools.partial(reference.dense, apart=True) if block_kv is None else _reference(block_kv)
    )


@functools.cache
def _reference(block_kv):
    # Jitted for the same reason as the kernels.
    run = (
        reference.dense
        if block_kv is None
        else functools.partial(reference.blocked, block=block_kv)
    )
    return jax.jit(run)
