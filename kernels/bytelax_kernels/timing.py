"""Measures device time per call, for the benchmarks of the kernels."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp


def seconds(call: Callable, first: jax.Array, *rest: Any, repeats: int = 200) -> float:
    """Measures the seconds that `call(first, *rest)` takes on the device.

    The result of the call must broadcast with its first argument.
    """

    def step(first, *rest):
        # Each call depends on the result of the one before, without a change in value.
        return first + 0 * jnp.nan_to_num(call(first, *rest)).astype(first.dtype)

    return seconds_of_step(step, first, *rest, repeats=repeats)


def seconds_of_step(step: Callable, carry: Any, *fixed: Any, repeats: int = 200) -> float:
    """Measures the seconds of one `carry = step(carry, *fixed)`, without host overhead.

    Many steps run in one program, and the best of five runs of it counts.

    Args:
      step: function that keeps the shapes and dtypes of `carry`.
      carry: pytree of arrays.
      *fixed: pytrees of arrays that are the same in all steps.
      repeats: number of steps in one program.
    """

    @jax.jit
    def many(carry, fixed):
        def once(_, carry):
            # Keeps XLA from hoisting computations on `fixed` alone out of the loop.
            carry, here = jax.lax.optimization_barrier((carry, fixed))
            return step(carry, *here)

        return jax.lax.fori_loop(0, repeats, once, carry)

    jax.block_until_ready(many(carry, fixed))
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        jax.block_until_ready(many(carry, fixed))
        times.append((time.perf_counter() - begin) / repeats)
    return min(times)


def bandwidth(floats: int = 2**30) -> float:
    """Measures memory bandwidth, reads plus writes, in bytes per second.

    Args:
      floats: number of float32 values that are read and written.
    """
    big = jnp.zeros(floats, jnp.float32)
    return 2 * big.nbytes / seconds_of_step(lambda x: x + 1, big, repeats=10)


def microseconds(
    ways: Mapping[str, Callable], *args: Any, calls: int = 1, measure: Callable = seconds
) -> dict[str, float | str]:
    """Measures the microseconds of several implementations of the same call.

    Args:
      ways: implementations by name.
      *args: their arguments.
      calls: number of calls that each of them stands for; the time is that of one.
      measure: `seconds`, or `seconds_of_step` for implementations that return a carry.

    Returns:
      A dict of `{name}_us`: the time, or the first line of the error if the call fails. "loop_us"
      is the overhead of the measurement, from an empty loop.
    """
    row: dict[str, float | str] = {}
    for name, way in {**ways, "loop": lambda first, *_: first}.items():
        try:
            row[f"{name}_us"] = round(1e6 * measure(way, *args) / calls, 2)
        except Exception as error:  # of any kind, so that the others are still measured
            row[f"{name}_us"] = str(error).split("\n")[0][:100]
    return row
