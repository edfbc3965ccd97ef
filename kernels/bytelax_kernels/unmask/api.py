"""`unmask`: one step of filling a block of masked cells."""

import functools
from typing import Literal

import jax
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels.dispatch import Kernel, call, inference_only, partitioned
from bytelax_kernels.unmask import gpu, reference, tpu
from bytelax_kernels.unmask.rule import Block, Rule, Unmasked

Implementation = Literal["xla", "tpu", "gpu"]


def unmask(
    logits: Float[Array, "B C V"],
    ids: Int[Array, "B C"],
    masked: Bool[Array, "B C"],
    *,
    rule: Rule,
    drawn: Int[Array, "B C"] | None = None,
    implementation: Implementation | None = None,
) -> Unmasked:
    """Fills those masked cells of a block that are sure enough.

    Rules of Fast BLT (arXiv 2605.08044, section 2.2) and of EB-Sampler (arXiv 2505.24857). They
    judge the model's own law, before temperature and truncation; equals are taken from left to
    right.

    Args:
      logits: the model's, of each cell; -inf for ids that are never emitted, but not for all.
      ids: the block.
      masked: its cells still to be filled.
      rule: static; which cells are filled.
      drawn: what each cell would be filled with; None takes the likeliest id, the lowest of equals.
      implementation: as in `verify_attention`.

    Raises:
      ValueError: the implementation does not take these shapes.
    """
    oracle, kernels = _implementations(rule)
    block = Block(logits, ids, masked, drawn)
    cells = "b c v, b c, b c" + ("" if drawn is None else ", b c")
    axes = f"{cells} -> b c, b c, b c, b c"
    split = functools.partial(partitioned, rule=axes, whole="c v")
    return call(implementation, block, reference=oracle, kernels=kernels, split=split)


@functools.cache
def _implementations(rule):
    def under(function):
        return lambda block: function(block, rule)

    # Jitted, so that the programs of one shape share one trace of them.
    kernels = {
        "tpu": Kernel(tpu.takes, inference_only(jax.jit(under(tpu.unmask)))),
        "gpu": Kernel(gpu.takes, inference_only(jax.jit(under(gpu.unmask)))),
    }
    return under(reference.unmask), kernels
