"""`dense`, a product of few rows in one operation with its surroundings."""

import functools
from typing import Literal

import jax
from jaxtyping import Array, Float

from bytelax_kernels import gpus
from bytelax_kernels.dense import reference
from bytelax_kernels.dense.operands import Form, Operands
from bytelax_kernels.dispatch import call, on_gpus, partitioned, platform

Implementation = Literal["xla", "gpu"]


def dense(
    rows: Float[Array, "R D"],
    kernel: Float[Array, "D N"],
    *,
    scale: Float[Array, " D"] | None = None,
    eps: float = 0.0,
    onto: Float[Array, "R F"] | None = None,
    times: int = 1,
    gated: bool = False,
    precision: jax.lax.Precision | None = None,
    implementation: Implementation | None = None,
) -> Float[Array, "R F"]:
    """Computes `times * onto + rms_norm(rows) @ kernel`, or the gated half of a SwiGLU.

    Exactness: the result for a row is bitwise independent of the other rows. In the kernel it does
    not depend on their number either, up to 16.

    Args:
      rows: a few rows, such as the hidden states of a window.
      kernel: the matrix. If `gated`, the columns of the gate followed by as many other ones.
      scale: scale of an RMSNorm (arXiv 1910.07467) in front of the product; None has no norm.
      eps: added to the mean square in the norm.
      onto: hidden states that the product is added to; None adds nothing.
      times: how many times they are added.
      gated: whether the result is `silu(gate) * other` (arXiv 2002.05202).
      precision: precision of the product.
      implementation: as in `verify_attention`; there is no kernel for TPUs.

    Returns:
      The result in the common dtype of `rows` and `kernel`, with F = N columns, or N / 2 if
      `gated`. The kernel sums in float32 and rounds once.

    Raises:
      ValueError: the named implementation does not support these operands.
    """
    form, operands = Form(eps, times, gated, precision), Operands(rows, kernel, scale, onto)
    oracle, kernels = _implementations(form)
    split = _split(operands, form)
    return call(implementation, operands, reference=oracle, kernels=kernels, split=split)


def fuses(operands: Operands) -> bool:
    """Whether `dense` is one operation for these operands on the platform that is traced for."""
    if platform() != "gpu":
        return False
    _, kernels = _implementations(Form())
    return kernels["gpu"]().takes(operands)


@functools.cache
def _implementations(form):
    def load():
        from bytelax_kernels.dense import gpu

        return gpu.takes, jax.jit(lambda operands: gpu.dense(operands, form))

    # Jitted, so that layers with the same shapes share one trace.
    oracle = jax.jit(lambda operands: reference.dense(operands, form))
    return oracle, {"gpu": functools.cache(functools.partial(on_gpus, gpus.TRITON, load))}


def _split(operands, form):
    """Lets XLA shard the kernel by rows."""
    out = "f" if form.gated else "n"
    scale = "" if operands.scale is None else ", d"
    onto = "" if operands.onto is None else f", r {out}"
    rule = f"r d, d n{scale}{onto} -> r {out}"
    whole = "d n f" if form.gated else "d n"
    return functools.partial(partitioned, rule=rule, whole=whole)
