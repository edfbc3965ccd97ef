"""Benchmarks `unmask` on an accelerator against its lower bound and XLA.

The lower bound ("floor") of a call is the time to read the logits, at the bandwidth of a plain
copy.
"""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bytelax_kernels import timing
from bytelax_kernels.unmask.api import unmask
from bytelax_kernels.unmask.rule import Block, Rule


class Case(NamedTuple):
    """Rule and sizes of a benchmark."""

    rule: Rule
    drawn: bool
    batch: int = 8
    cells: int = 16


CASES = {
    "confidence, greedy": Case(Rule("confidence", 0.7), False),
    "entropy, drawn": Case(Rule("entropy", 1.0), True),
    "entropy, drawn, B 64, C 32": Case(Rule("entropy", 1.0), True, 64, 32),
}


def example(case: Case, seed: int = 0) -> Block:
    """Random logits over ids, with most cells still masked."""
    rng = np.random.default_rng(seed)
    shape = (case.batch, case.cells)
    ids = jnp.full(shape, 260, jnp.int32)
    drawn = jnp.asarray(rng.integers(4, 260, shape), jnp.int32) if case.drawn else None
    masked = jnp.asarray(rng.random(shape) < 0.8)
    return Block(jnp.asarray(3 * rng.normal(size=(*shape, 260)), jnp.float32), ids, masked, drawn)


def times(case: Case, per_second: float) -> dict:
    """Microseconds of the lower bound, the kernel and XLA.

    `per_second` is the memory bandwidth in bytes per second.
    """
    block = example(case)

    def step(*block, implementation):
        made = unmask(**Block(*block)._asdict(), rule=case.rule, implementation=implementation)
        return made.ids.astype(jnp.float32)[..., None]

    ways = {
        "kernel": functools.partial(step, implementation=None),
        "xla": functools.partial(step, implementation="xla"),
    }
    floor = {"floor_us": round(1e6 * block.logits.nbytes / per_second, 2)}
    return floor | timing.microseconds(ways, *block)
