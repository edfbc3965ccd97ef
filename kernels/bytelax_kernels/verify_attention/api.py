"""`verify_attention`: the attention of the parallel verification pass."""

import functools
from typing import Literal

import jax
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels.dispatch import by_platform, inference_only, partitioned
from bytelax_kernels.verify_attention import gpu, reference, tpu
from bytelax_kernels.verify_attention.sight import Sight

Implementation = Literal["reference", "tpu", "gpu"]


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
        takes these shapes, and the reference anywhere else.

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
    sight = Sight(first, last, newest, ancestors)
    oracle = _reference(block)
    if implementation == "reference":
        return oracle(queries, keys, values, sight)
    taken = {name: run for name, (takes, run) in _KERNELS.items() if takes(queries, keys, sight)}
    if implementation is None:
        taken = {name: _partitioned(run, queries, keys, sight) for name, run in taken.items()}
        return by_platform(oracle, taken)(queries, keys, values, sight)
    if implementation not in taken:
        raise ValueError(
            f"the {implementation} kernel does not take queries {jax.typeof(queries)} with caches "
            f"{jax.typeof(keys)}"
        )
    return taken[implementation](queries, keys, values, sight)


# Jitted, so that the layers of a model share one trace of them.
_KERNELS = {
    "tpu": (tpu.takes, inference_only(jax.jit(tpu.attention))),
    "gpu": (gpu.takes, inference_only(jax.jit(gpu.attention))),
}


def _partitioned(kernel, queries, keys, sight):
    """Rows may be split, and key heads with the query heads that read them."""
    kv_heads, group = keys.shape[1], queries.shape[2] // keys.shape[1]
    cells = "" if sight.ancestors is None else ", b w c"
    if kv_heads > 1 and group > 1:
        heads, sizes = "(k g)", {"g": group}
    else:  # an axis is made of several factors only where none of them is 1
        heads, sizes = ("k" if group == 1 else "g"), {}
    rule = f"b w {heads} d, b k s d, b k s d, b w, b w, b{cells} -> b w {heads} d"
    whole = [factor for factor in "wgdsc" if factor in rule]  # in order of appearance
    return partitioned(kernel, rule, whole=" ".join(whole), **sizes)


@functools.cache
def _reference(block):
    if block is None:
        return reference.dense
    return functools.partial(reference.blocked, block=block)
