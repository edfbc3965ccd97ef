"""Reading a reference into registers on Hopper, on every JAX that we run on."""

import inspect

import jax
from jax.experimental.pallas import mosaic_gpu as plgpu


def load(ref, layout) -> jax.Array:
    """All of `ref`, in a register layout. Unaligned: JAX would refuse what is not in full tiles."""
    # JAX 0.10 wants an index beside the reference, 0.12 knows none.
    index = [()] if "idx" in inspect.signature(plgpu.load).parameters else []
    return plgpu.load(ref, *index, layout=layout, optimized=False)
