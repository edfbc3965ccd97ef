"""`verify_attention`: the attention of the parallel verification pass."""

import functools
from typing import Literal

import jax
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels.dispatch import Kernel, call, inference_only, partitioned
from bytelax_kernels.verify_attention import cudnn, gpu, reference, tpu
from bytelax_kernels.verify_attention.inputs import Inputs
from bytelax_kernels.verify_attention.sight import Sight

Implementation = Literal["xla", "tpu", "gpu", "cudnn"]


def verify_attention(
    queries: Float[Array, "B W H D"],
    keys: Float[Array, "B K S D"],
    values: Float[Array, "B K S D"],
    *,
    first: Int[Array, "B W"],
    last: Int[Array, "B W"],
    newest: Int[Array, " B"],
    ancestors: Bool[Array, "B W W"] | None = None,
    block: int | None = None,
    implementation: Implementation | None = None,
) -> Float[Array, "B W H D"]:
    """Softmax attention of each query over the cached positions `first..last`.

    A cache of S slots holds position p in slot `p % S`; `newest` is the latest position written in
    each row, so a slot that was overwritten counts as the later position. A full cache is a ring
    that never wrapped. Causal, windowed, per-document, per-patch and block-bidirectional attention
    are all intervals.

    A tree is a window whose W cells lie, in any order, at the W newest positions: cell c at
    position `newest - W + 1 + c`, whatever its depth. Each query then sees the interval, which ends
    before the window, and besides it the cells that are flagged in its row: its ancestors and
    itself.

    Args:
      queries: one window of W queries a row, H heads, unscaled.
      keys: K key heads; head h reads key head `h // (H // K)`.
      values: as `keys`.
      first: first visible position of each query, at least 0.
      last: last visible position, inclusive. `first > last` is an empty interval.
      newest: latest position written in the row's cache.
      ancestors: `[b, i, c]`, whether query i of row b also sees cell c of its window.
      block: the reference reads the cache in blocks of that many slots and only those that some
        query sees; the cache must never have wrapped. None reads every slot. The kernels choose
        their blocks themselves and never read what no query of the row sees.
      implementation: None takes the kernel of the platform that the program is compiled for, if it
        takes these shapes, and the reference anywhere else. By name: "xla", the reference; "tpu" or
        "gpu", our kernels; "cudnn", which claims no law of exactness.

    Returns:
      The attended values in the dtype of `queries`; scores and sums are float32. Zeros where a
      query sees nothing.

    Laid out by slot, hence the law of exactness: the result of a query is bitwise independent of
    its row in the window, of the other rows and of what invisible slots hold (if finite). The cell
    of a tree lies in another slot than the same byte of a linear window, so those two agree only to
    rounding.

    The kernels are for inference. Without `implementation` the derivative is the reference's, on
    every platform.
    """
    inputs = Inputs(queries, keys, values, Sight(first, last, newest, ancestors))
    return call(
        implementation,
        inputs,
        reference=_reference(block),
        derivative=_derivative(block),
        kernels=_KERNELS,
        libraries=_LIBRARIES,
        split=functools.partial(_split, inputs=inputs),
    )


# Jitted, so that the layers of a model share one trace of them.
_KERNELS = {
    "tpu": Kernel(tpu.takes, inference_only(jax.jit(tpu.attention))),
    "gpu": Kernel(gpu.takes, inference_only(jax.jit(gpu.attention))),
}
_LIBRARIES = {"cudnn": Kernel(cudnn.takes, cudnn.attention)}


def _split(kernel, inputs):
    """Rows may be split over devices, and key heads with the query heads that read them."""
    kv_heads, group = inputs.sizes.kv_heads, inputs.sizes.group
    cells = "" if inputs.sight.ancestors is None else ", b w c"
    if kv_heads > 1 and group > 1:
        heads, sizes = "(k g)", {"g": group}
    else:  # an axis is made of several factors only where none of them is 1
        heads, sizes = ("k" if group == 1 else "g"), {}
    rule = f"b w {heads} d, b k s d, b k s d, b w, b w, b{cells} -> b w {heads} d"
    whole = [factor for factor in "wgdsc" if factor in rule]  # in order of appearance
    return partitioned(kernel, rule, whole=" ".join(whole), **sizes)


@functools.cache
def _derivative(block):
    """What the derivative is taken of: the reference as a mesh can split it by rows and heads."""
    return functools.partial(reference.dense, apart=True) if block is None else _reference(block)


@functools.cache
def _reference(block):
    if block is None:
        return reference.dense
    return functools.partial(reference.blocked, block=block)
