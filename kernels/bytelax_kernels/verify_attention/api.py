"""`verify_attention`: the attention of the parallel verification pass."""

from jaxtyping import Array, Float, Int

from bytelax_kernels.verify_attention import reference


def verify_attention(
    queries: Float[Array, "B W H D"],
    keys: Float[Array, "B K S D"],
    values: Float[Array, "B K S D"],
    *,
    first: Int[Array, "B W"],
    last: Int[Array, "B W"],
    newest: Int[Array, " B"],
    block: int | None = None,
) -> Float[Array, "B W H D"]:
    """Softmax attention of each query over the cached positions `first..last`.

    A cache of S slots holds position p in slot `p % S`; `newest` is the latest position written in
    each row, so a slot that was overwritten counts as the later position. A full cache is a ring
    that never wrapped. Causal, windowed, per-document and per-patch attention are all intervals.

    Args:
      queries: one window of W queries a row, H heads, unscaled.
      keys: K key heads; head h reads key head `h // (H // K)`.
      values: as `keys`.
      first: first visible position of each query, at least 0.
      last: last visible position, inclusive. `first > last` sees nothing and yields zeros.
      newest: latest position written in the row's cache.
      block: read the cache in blocks of that many slots and only those that some query sees. The
        cache must never have wrapped. None reads every slot.

    Returns:
      The attended values in the dtype of `queries`; scores and sums are float32.

    Laid out by slot, hence the law of exactness: the result of a query is bitwise independent of
    its row in the window, of the other rows and of what invisible slots hold (if finite).
    """
    if block is None:
        return reference.dense(queries, keys, values, first, last, newest)
    return reference.blocked(queries, keys, values, first, last, block)
