"""Which implementation of a kernel runs, and which of them has a derivative."""

from collections.abc import Callable, Mapping
from typing import Any

import jax

_PLATFORMS = {"tpu": "tpu", "gpu": "cuda"}


def by_platform(reference: Callable, kernels: Mapping[str, Callable]) -> Callable:
    """The kernel of the platform that a program is lowered for; the reference where there is none.

    Its derivative is the reference's on every platform, so that training needs no switch.

    Args:
      reference: a differentiable function of arrays.
      kernels: functions of the same arrays, for "tpu" and "gpu".
    """
    if not kernels:
        return reference

    by_name = {_PLATFORMS[name]: kernel for name, kernel in kernels.items()}

    @jax.custom_jvp
    def dispatched(*args):
        return jax.lax.platform_dependent(*args, default=reference, **by_name)

    @dispatched.defjvp
    def _(args, tangents):
        return jax.jvp(reference, args, tangents)

    return dispatched


def inference_only(kernel: Callable) -> Callable:
    """`kernel`, with a clear error where somebody asks for its derivative."""
    guarded = jax.custom_jvp(kernel)

    @guarded.defjvp
    def _(args: Any, tangents: Any):
        raise NotImplementedError(
            "this kernel is for inference and has no derivative: call it with "
            'implementation="reference", or without `implementation`'
        )

    return guarded
