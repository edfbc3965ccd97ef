"""`unmask`, one unmasking step of a block of masked cells."""

import functools
from typing import Literal

import jax
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels import gpus
from bytelax_kernels.dispatch import Kernel, call, inference_only, on_gpus, partitioned
from bytelax_kernels.unmask import reference
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
    """Fills in those masked cells of a block about which the model is certain enough.

    The rules are those of Fast BLT (arXiv 2605.08044, section 2.2) and EB-Sampler
    (arXiv 2505.24857). They depend on the model's own distributions, before temperature and
    truncation. Ties are broken from left to right.

    Args:
      logits: the model's logits for each cell; -inf for ids that are never emitted, but not for all
        ids of a cell.
      ids: the block.
      masked: which cells are still masked.
      rule: which cells to fill in; static.
      drawn: the id that each cell would be filled with. None uses the most likely id, and the
        lowest one among ties.
      implementation: as in `verify_attention`.

    Raises:
      ValueError: the named implementation does not support these inputs.
    """
    oracle, kernels, libraries = _implementations(rule)
    block = Block(logits, ids, masked, drawn)
    cells = "b c v, b c, b c" + ("" if drawn is None else ", b c")
    axes = f"{cells} -> b c, b c, b c"
    split = functools.partial(partitioned, rule=axes, whole="c v")
    return call(
        implementation, block, reference=oracle, kernels=kernels, libraries=libraries, split=split
    )


@functools.cache
def _implementations(rule):
    def under(function):
        return lambda block: function(block, rule)

    # Jitted, so that programs with the same shapes share one trace.
    @functools.cache
    def on_tpu():
        from bytelax_kernels.unmask import tpu

        return Kernel(tpu.takes, inference_only(jax.jit(under(tpu.unmask))))

    @functools.cache
    def on_gpu():
        def load():
            from bytelax_kernels.unmask import gpu

            return gpu.takes, jax.jit(under(gpu.unmask))

        return on_gpus(gpus.MOSAIC, load)

    oracle = under(reference.unmask)
    if rule.kind in ("entropy", "entropy-but-one"):
        return oracle, {"tpu": on_tpu, "gpu": on_gpu}, {}
    # On a GPU XLA makes as few kernels of the other rules, so ours runs only by name.
    return oracle, {"tpu": on_tpu}, {"gpu": on_gpu}
