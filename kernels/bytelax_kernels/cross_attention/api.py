"""`write` and `read_one`: keys and values in rings, of bytes or of the few vectors of a patch."""

import functools
from typing import Literal

import jax
from jaxtyping import Array, Float, Int

from bytelax_kernels import gpus
from bytelax_kernels.cross_attention import reference
from bytelax_kernels.dispatch import call, on_gpus, partitioned, platform

Implementation = Literal["xla", "gpu"]


def write(
    rings: tuple[Float[Array, "B ..."], Float[Array, "B ..."]],
    new: tuple[Float[Array, "B W *k K D"], Float[Array, "B W *k K D"]],
    slots: Int[Array, "B W"],
    *,
    implementation: Implementation | None = None,
) -> tuple[Float[Array, "B ..."], Float[Array, "B ..."]]:
    """Writes keys and values to their slots; slots out of bounds are dropped.

    Where the rings are donated, or carried by a loop, they are changed in place.

    Args:
      rings: keys and values, by head [B, K, S, D], or of k vectors each [B, S, k, K, D].
      new: those to write.
      slots: where to.
      implementation: as in `append_attention`; the kernel is for GPUs.

    Returns:
      The rings, written to.
    """
    by_head = rings[0].ndim == 4
    ring, entry = ("b k s d", "b w k d") if by_head else ("b s v k d", "b w v k d")
    rule = f"{ring}, {ring}, {entry}, {entry}, b w -> {ring}, {ring}"
    return call(
        implementation,
        (*rings, *new, slots),
        reference=lambda x: reference.write(x[:2], x[2:4], x[4], by_head=by_head),
        kernels=_kernels(implementation, "write"),
        split=lambda kernel: partitioned(kernel, rule, whole=_whole(rule)),
    )


def read_one(
    queries: Float[Array, "B W H D"],
    keys: Float[Array, "B S k K D"],
    values: Float[Array, "B S k K D"],
    slots: Int[Array, "B W"],
    *,
    implementation: Implementation | None = None,
) -> Float[Array, "B W H D"]:
    """Attends from each query to the k vectors in one slot, without positions.

    Args:
      queries: unscaled; query head h reads key head `h // (H // K)`.
      keys, values: rings.
      slots: the slot that each query reads.
      implementation: as in `write`.
    """
    rule = "b w h d, b s v k d, b s v k d, b w -> b w h d"
    return call(
        implementation,
        (queries, keys, values, slots),
        reference=lambda x: reference.read_one(*x),
        kernels=_kernels(implementation, "read_one"),
        split=lambda kernel: partitioned(kernel, rule, whole=_whole(rule)),
    )


def _whole(rule):
    """All factors of a rule but the rows, in order of appearance."""
    return " ".join(dict.fromkeys(factor for factor in rule if factor.isalpha() and factor != "b"))


def _kernels(implementation, name):
    if implementation is None and platform() != "gpu":
        return {}
    return {"gpu": functools.partial(_gpu, name)}


@functools.cache
def _gpu(name):
    def load():
        from bytelax_kernels.cross_attention import gpu

        return getattr(gpu, f"takes_{name}"), jax.jit(getattr(gpu, name))

    return on_gpus(gpus.CUDA, load)
