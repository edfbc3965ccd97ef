"""Compatibility of Mosaic GPU's interface between versions of JAX."""

import inspect
from typing import Any

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu


def load(ref, layout) -> jax.Array:
    """Loads a whole reference into registers with the given layout.

    The load is not optimized, because JAX would then refuse references that are not made of full
    tiles.
    """
    # `plgpu.load` requires an index in JAX 0.10 and has no such argument in 0.12.
    index = [()] if "idx" in inspect.signature(plgpu.load).parameters else []
    return plgpu.load(ref, *index, layout=layout, optimized=False)


def costing(cost: pl.CostEstimate) -> dict[str, Any]:
    """The keyword argument for a cost estimate in `plgpu.kernel`; none before JAX 0.12."""
    known = "cost_estimate" in inspect.signature(plgpu.kernel).parameters
    return {"cost_estimate": cost} if known else {}
