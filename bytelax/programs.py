"""Ahead-of-time compiled programs, so that compile time is told apart from run time."""

import collections
import time
from typing import Any

import jax

# A program holds about a hundred memory maps, of which a process may have 65530 on Linux.
_MOST = 64

_programs: collections.OrderedDict = collections.OrderedDict()  # the latest used come last
_counts = collections.Counter()


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
    shapes = tuple((x.shape, x.dtype, x.sharding) for x in leaves)
    key = (program, tuple(sorted(static.items())), tree, shapes)
    known = key in _programs
    if not known:
        _programs[key] = program.lower(*args, **static).compile()
        _counts["compiled"] += 1
        if len(_programs) > _MOST:
            _programs.popitem(last=False)
    _programs.move_to_end(key)
    seconds = 0.0 if known else time.perf_counter() - begin
    return jax.block_until_ready(_programs[key](*args)), seconds


def compiled() -> int:
    """How many programs were compiled so far."""
    return _counts["compiled"]


def forget() -> None:
    """Lets go of all compiled programs."""
    _programs.clear()
