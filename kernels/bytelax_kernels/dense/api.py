"""`dense`, a product of few rows in one operation with its surroundings."""

from typing import Any, cast

import jax
from jaxtyping import Array, Float

from bytelax_kernels.dense import cpu, gpu
from bytelax_kernels.dense.panels import Panels


def dense(
    rows: Float[Array, "R D"],
    matrix: Panels,
    *,
    scale: Float[Array, " D"] | None = None,
    eps: float = 0.0,
    onto: Float[Array, "R F"] | None = None,
    times: int = 1,
    gated: bool = False,
    precision: jax.lax.Precision | None = None,
) -> Float[Array, "R F"]:
    """Computes `times * onto + rms_norm(rows) @ matrix`, or the gated half of a SwiGLU.

    The type of the panels selects the kernel: there is one for processors and one for GPUs.

    Exactness: sums are in float32, each in one order, and are rounded once. So the bits of a row
    depend neither on the other rows nor on how many there are; on a GPU up to 32.

    Args:
      rows: a few rows, such as the hidden states of a window.
      matrix: the matrix. If `gated`, the gate is the first of a pair.
      scale: scale of an RMSNorm (arXiv 1910.07467) in front of the product; None has no norm.
      eps: added to the mean square in the norm.
      onto: hidden states that the product is added to, in the dtype of the rows; None adds nothing.
      times: how many times they are added.
      gated: whether the result is `silu(gate) * other` (arXiv 2002.05202).
      precision: precision of the product where XLA computes it.

    Returns:
      The result in the dtype of the rows; F is the number of columns, or half of it if `gated`.
    """
    how: dict[str, Any] = {"eps": eps, "times": times, "gated": gated}
    if isinstance(matrix, gpu.Panels):
        return gpu.dense(rows, matrix, scale=scale, onto=onto, precision=precision, **how)
    return cpu.dense(rows, cast(cpu.Panels, matrix), scale=scale, onto=onto, **how)
