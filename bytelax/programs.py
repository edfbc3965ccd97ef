"""Ahead-of-time compiled programs, so that compile time is told apart from run time."""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax


def run(program: Any, *args, **static) -> tuple[Any, float]:
    """Calls a jitted function and waits for its result.

    Args:
      program: from `jax.jit`; `static` are its static arguments and must be hashable.
      *args: pytrees of arrays.

    Returns:
      The result, and the seconds spent compiling: 0 when the shapes were seen before.
    """
    begin = time.perf_counter()
    leaves, tree = jax.tree.flatten(args)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for x in leaves)
    misses = _compiled.cache_info().misses
    compiled = _compiled(program, tree, shapes, tuple(sorted(static.items())))
    new = _compiled.cache_info().misses > misses
    seconds = time.perf_counter() - begin if new else 0.0
    return jax.block_until_ready(compiled(*args)), seconds


@functools.lru_cache(maxsize=128)
def _compiled(program, tree, shapes, static) -> Callable:
    return program.lower(*tree.unflatten(shapes), **dict(static)).compile()
