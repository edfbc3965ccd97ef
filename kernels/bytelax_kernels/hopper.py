"""What Mosaic GPU calls by other names from one JAX to the next."""

import inspect

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def load(ref, layout) -> jax.Array:
    """All of `ref`, in a register layout. Unaligned: JAX would refuse what is not in full tiles."""
    # JAX 0.10 wants an index beside the reference, 0.12 knows none.
    index = [()] if "idx" in inspect.signature(plgpu.load).parameters else []
    return plgpu.load(ref, *index, layout=layout, optimized=False)


def costing(cost: pl.CostEstimate) -> dict[str, pl.CostEstimate]:
    """What `plgpu.kernel` is told of a cost: from JAX 0.12 on."""
    told = "cost_estimate" in inspect.signature(plgpu.kernel).parameters
    return {"cost_estimate": cost} if told else {}
