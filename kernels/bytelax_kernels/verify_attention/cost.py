"""What a kernel costs, for XLA to schedule around it."""

from jax.experimental import pallas as pl

from bytelax_kernels.verify_attention.inputs import Inputs


def cost(inputs: Inputs) -> pl.CostEstimate:
    """Cost estimate of a kernel if its queries attend to all slots: an upper bound."""
    queries, keys, values, _ = inputs
    scored = queries.shape[1] * queries.shape[2] * keys.shape[0] * keys.shape[2]
    return pl.CostEstimate(
        flops=4 * scored * keys.shape[3],
        transcendentals=scored,
        bytes_accessed=2 * queries.nbytes + keys.nbytes + values.nbytes,
    )
