"""What a kernel costs, for XLA to schedule around it."""

from jax.experimental import pallas as pl

from bytelax_kernels.unmask.rule import Block


def cost(block: Block) -> pl.CostEstimate:
    """Cost estimate of a kernel."""
    return pl.CostEstimate(
        flops=10 * block.logits.size,
        transcendentals=2 * block.logits.size,
        bytes_accessed=4 * (block.logits.size + 4 * block.ids.size),
    )
