"""Chooses the implementation of a kernel, by platform or by name, and defines its derivative."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
from jax.experimental.custom_partitioning import custom_partitioning

from bytelax_kernels import gpus

_PLATFORMS = {"tpu": "tpu", "gpu": "cuda", "cpu": "cpu"}
_GROUP = 6
_only: contextvars.ContextVar[str | None] = contextvars.ContextVar("only", default=None)


@contextlib.contextmanager
def traced_for(platform: str) -> Iterator[None]:
    """A context in which operations are traced for one platform, and other kernels are left out.

    A program is otherwise traced for every platform that has kernels, so that it can be compiled
    for any of them. That takes time, and imports Pallas.

    Args:
      platform: platform of a device as JAX names it: "cpu", "gpu" or "tpu".
    """
    token = _only.set(platform)
    try:
        yield
    finally:
        _only.reset(token)


def platform() -> str:
    """The platform that operations are traced for: of `traced_for`, or of the default device."""
    return _only.get() or jax.default_backend()


def rows_alike(rows: int) -> int:
    """The number of rows to pad `rows` to, so that this platform sums every row in the same order.

    A row's sum must not depend on its place in a window. The Eigen of XLA:CPU multiplies rows in
    groups of six, and groups in panels. After more than one whole group it sums the remaining rows
    in another order, on processors without AVX-512.
    """
    if platform() != "cpu" or rows <= _GROUP:
        return rows
    return -(-rows // (2 * _GROUP)) * 2 * _GROUP


class Kernel(NamedTuple):
    """One implementation of an operation.

    Attributes:
      takes: whether the implementation supports given inputs; depends on shapes and dtypes only.
      run: function from the inputs, one pytree of arrays, to the results.
    """

    takes: Callable[[Any], bool]
    run: Callable[[Any], Any]


def on_gpus(backend: gpus.Backend, load: Callable[[], tuple[Callable, Callable]]) -> Kernel:
    """A kernel with `takes` and `run`; it takes nothing where it cannot run.

    Args:
      backend: what compiles it.
      load: function that returns its `takes` and its `run`, and imports what they need.
    """
    loaded = functools.cache(load)
    return Kernel(
        lambda inputs: gpus.run(backend) and loaded()[0](inputs),
        inference_only(lambda inputs: loaded()[1](inputs)),
    )


def call(
    implementation: str | None,
    inputs: Any,
    *,
    reference: Callable,
    kernels: Mapping[str, Callable[[], Kernel]],
    split: Callable[[Callable], Callable],
    libraries: Mapping[str, Callable[[], Kernel]] | None = None,
    derivative: Callable | None = None,
) -> Any:
    """Runs the implementation with the given name, or by default that of the platform.

    Args:
      implementation: "xla" for the reference, another name for that kernel, or None to choose by
        platform among the kernels that support the inputs; see `by_platform`.
      inputs: one pytree of arrays.
      reference: differentiable reference implementation.
      kernels: functions that return the kernels, by platform; those of platforms that a
        program is not traced for are not called, so that they may import what a kernel needs.
      split: function that makes a kernel `partitioned`.
      libraries: further implementations, which run only by name.
      derivative: as in `by_platform`.

    Raises:
      ValueError: the named implementation does not support these inputs.
    """
    if implementation == "xla":
        return reference(inputs)
    if implementation is None:
        platform = _only.get()
        made = {name: make() for name, make in kernels.items() if platform in (None, name)}
        taken = {name: split(kernel.run) for name, kernel in made.items() if kernel.takes(inputs)}
        known = platform if platform == jax.default_backend() else None
        return by_platform(reference, taken, derivative=derivative, known=known)(inputs)
    chosen = {**kernels, **(libraries or {})}[implementation]()
    if not chosen.takes(inputs):
        given = ", ".join(str(jax.typeof(x)) for x in jax.tree.leaves(inputs))
        raise ValueError(f"the {implementation} kernel does not take {given}")
    return chosen.run(inputs)


def by_platform(
    reference: Callable,
    kernels: Mapping[str, Callable],
    *,
    derivative: Callable | None = None,
    known: str | None = None,
) -> Callable:
    """A function that runs the kernel of the platform it is lowered for, or else the reference.

    The derivative is that of the reference on every platform, so that training needs no switch.
    `jax.vmap` uses the reference as well, because the kernels have batch axes of their own.

    Args:
      reference: differentiable function of arrays.
      kernels: functions of the same arrays, by platform.
      derivative: a function equal to `reference` that is differentiated in its place, if another
        computation suits training better.
      known: the platform, if it is known: then the reference is not traced as well.
    """
    derivative = derivative or reference
    if not kernels and derivative is reference:
        return reference

    by_name = {_PLATFORMS[name]: kernel for name, kernel in kernels.items()}
    if not by_name:
        run = reference
    elif known is not None and known in kernels:
        run = kernels[known]
    else:
        run = functools.partial(jax.lax.platform_dependent, default=reference, **by_name)
    chosen = jax.custom_batching.custom_vmap(run)

    @chosen.def_vmap
    def _(axis_size, batched, *args):
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
        out = jax.vmap(reference, axes, axis_size=axis_size)(*args)
        return out, jax.tree.map(lambda _: True, out)

    dispatched = jax.custom_jvp(chosen)

    @dispatched.defjvp
    def _(args, tangents):
        return jax.jvp(derivative, args, tangents)

    return dispatched


def partitioned(kernel: Callable, rule: str, *, whole: str, **sizes: int) -> Callable:
    """Makes XLA's partitioner run `kernel` on each device's shards of sharded arrays.

    On a single device and inside `jax.shard_map` the result is the kernel itself.

    Args:
      kernel: function of arrays.
      rule: sharding rule of the flat arguments and results, as for `custom_partitioning`.
      whole: factors of the rule that must not be sharded, separated by spaces.
      **sizes: sizes of factors that occur only as part of an axis.
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
    """Wraps a kernel so that taking its derivative raises a clear error."""
    guarded = jax.custom_jvp(kernel)

    @guarded.defjvp
    def _(args: Any, tangents: Any):
        raise NotImplementedError(
            "this kernel is for inference and has no derivative: call it with "
            'implementation="xla", or without `implementation`'
        )

    return guarded
