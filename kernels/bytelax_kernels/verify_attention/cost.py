"""What a kernel costs, for XLA to schedule around it."""

from jax.experimental import pallas as pl

from bytelax_kernels.verify_attention.inputs import Inputs


def cost(inputs: Inputs) -> pl.CostEstimate:
    """Cost estimate of a kernel if its queries attend to all slots: an upper bound."""
    queries, keys, values, _ = inputs
    scored = queries.shape[0] * queries.shape[1] * queries.shape[2] * inputs.sizes.slots
    return pl.CostEstimate(
        flops=4 * scored * inputs.sizes.dim,
        transcendentals=scored,
        bytes_accessed=2 * queries.nbytes + keys.nbytes + values.nbytes,
    )
