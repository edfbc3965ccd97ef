"""Which implementation of a kernel runs, and which of them has a derivative."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax.experimental.custom_partitioning import custom_partitioning

_PLATFORMS = {"tpu": "tpu", "gpu": "cuda"}


class Kernel(NamedTuple):
    """One implementation.

    Attributes:
      takes: whether it is made for such inputs; looks at shapes and dtypes only.
      run: from the inputs, one pytree of arrays, to the results.
    """

    takes: Callable[[Any], bool]
    run: Callable[[Any], Any]


def call(
    implementation: str | None,
    inputs: Any,
    *,
    reference: Callable,
    kernels: Mapping[str, Kernel],
    split: Callable[[Callable], Callable],
    libraries: Mapping[str, Kernel] | None = None,
    derivative: Callable | None = None,
) -> Any:
    """Runs the implementation of this name; without one, that of the platform.

    Args:
      implementation: "xla" is the reference, None the choice of `by_platform`.
      inputs: one pytree of arrays.
      reference: a differentiable function of them.
      kernels: for "tpu" and "gpu".
      split: makes a kernel `partitioned`.
      libraries: further implementations, which run only by name.
      derivative: as in `by_platform`.

    Raises:
      ValueError: the implementation does not take these inputs.
    """
    if implementation == "xla":
        return reference(inputs)
    if implementation is None:
        taken = {name: split(made.run) for name, made in kernels.items() if made.takes(inputs)}
        return by_platform(reference, taken, derivative=derivative)(inputs)
    chosen = {**kernels, **(libraries or {})}[implementation]
    if not chosen.takes(inputs):
        given = ", ".join(str(jax.typeof(x)) for x in jax.tree.leaves(inputs))
        raise ValueError(f"the {implementation} kernel does not take {given}")
    return chosen.run(inputs)


def by_platform(
    reference: Callable, kernels: Mapping[str, Callable], *, derivative: Callable | None = None
) -> Callable:
    """The kernel of the platform that a program is lowered for; the reference where there is none.

    Its derivative is the reference's on every platform, so that training needs no switch, and what
    `jax.vmap` makes of it is the reference too: the kernels have batch axes of their own.

    Args:
      reference: a differentiable function of arrays.
      kernels: functions of the same arrays, for "tpu" and "gpu".
      derivative: the same function as the reference, where another way to compute it suits training
        better.
    """
    derivative = derivative or reference
    if not kernels and derivative is reference:
        return reference

    by_name = {_PLATFORMS[name]: kernel for name, kernel in kernels.items()}

    @jax.custom_batching.custom_vmap
    def chosen(*args):
        if not by_name:
            return reference(*args)
        return jax.lax.platform_dependent(*args, default=reference, **by_name)

    @chosen.def_vmap
    def _(axis_size, batched, *args):
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
        out = jax.vmap(reference, axes, axis_size=axis_size)(*args)
        return out, jax.tree.map(lambda _: True, out)

    @jax.custom_jvp
    def dispatched(*args):
        return chosen(*args)

    @dispatched.defjvp
    def _(args, tangents):
        return jax.jvp(derivative, args, tangents)

    return dispatched


def partitioned(kernel: Callable, rule: str, *, whole: str, **sizes: int) -> Callable:
    """`kernel` for arrays that XLA's partitioner splits over a mesh: each device calls its part.

    On one device and under `jax.shard_map` it is the kernel itself.

    Args:
      kernel: a function of arrays.
      rule: of the flat arguments and results, as `custom_partitioning` takes it.
      whole: factors of the rule along which nothing may be split, with spaces between.
      **sizes: of the factors that are part of one axis only.
    """

    def partition(mesh, arguments, results):
        held = [jax.tree.map(lambda x: x.sharding, part) for part in (results, arguments)]
        return mesh, kernel, *held

    split = custom_partitioning(kernel)
    split.def_partition(
        partition=partition,
        sharding_rule=rule,
        need_replication_factors=tuple(whole.split()),
        **sizes,
    )
    return split


def inference_only(kernel: Callable) -> Callable:
    """`kernel`, with a clear error where somebody asks for its derivative."""
    guarded = jax.custom_jvp(kernel)

    @guarded.defjvp
    def _(args: Any, tangents: Any):
        raise NotImplementedError(
            "this kernel is for inference and has no derivative: call it with "
            'implementation="xla", or without `implementation`'
        )

    return guarded
