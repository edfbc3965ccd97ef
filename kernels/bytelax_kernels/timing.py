"""Seconds of one call on the device, for the benchmarks of the kernels."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def seconds(call: Callable, first: jax.Array, *rest: Any, repeats: int = 200) -> float:
    """Of `call(first, *rest)`, whose result broadcasts with its first argument."""

    def step(first, *rest):
        # The result flows into the next call's first argument and leaves it as it is.
        return first + 0 * jnp.nan_to_num(call(first, *rest)).astype(first.dtype)

    return seconds_of_step(step, first, *rest, repeats=repeats)


def seconds_of_step(step: Callable, carry: Any, *fixed: Any, repeats: int) -> float:
    """Of `carry = step(carry, *fixed)`, without the host: many in one program, the best of five.

    Args:
      step: keeps shapes and dtypes.
      carry: a pytree of arrays.
      *fixed: pytrees of arrays, the same for all steps.
      repeats: steps in one program.
    """

    @jax.jit
    def many(carry, fixed):
        def once(_, carry):
            # Nothing that a step computes from `fixed` alone is taken out of the loop.
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
    """Bytes a second that an array's copy reads and writes."""
    big = jnp.zeros(floats, jnp.float32)
    return 2 * big.nbytes / seconds_of_step(lambda x: x + 1, big, repeats=10)


def microseconds(ways: dict[str, Callable], *args: Any) -> dict[str, float | str]:
    """Of each way to make the same call; where one does not run, what it says.

    "loop_us" is what measuring costs: the same loop around nothing.
    """
    row = {}
    for name, way in {**ways, "loop": lambda first, *_: first}.items():
        try:
            row[f"{name}_us"] = round(1e6 * seconds(way, *args), 2)
        except Exception as error:  # of any kind: the other ways still count
            row[f"{name}_us"] = str(error).split("\n")[0][:100]
    return row


def show(cases: dict[str, Any], times: Callable[[Any, float], dict]) -> None:
    """Prints what a benchmark says of each case."""
    per_second = bandwidth()
    print(f"{jax.devices()[0].device_kind}, {per_second / 1e12:.2f} TB/s")
    for name, case in cases.items():
        print(f"{name:28s} {times(case, per_second)}", flush=True)
