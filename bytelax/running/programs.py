"""The compiled programs of an `Engine`, which run on one device or on every device of a mesh."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from bytelax_kernels.dispatch import traced_for

from bytelax.compiling import late_jit, own_settings
from bytelax.decode import stopping
from bytelax.decode.target import Text
from bytelax.pods import sharding


def _program(*kinds: sharding.Kind, static: tuple[str, ...] = (), **how: Any) -> Callable:
    """Decorator that makes a function of arrays a function that returns its compiled program.

    The program has two keywords more: `placement` on a mesh, or None, and `platform`.

    Args:
      *kinds: how each of the arrays lies on a mesh; see `sharding.spread`.
      static: names of the keywords of the function.
      **how: keywords of `jax.jit`.
    """

    def compiled(body):
        def run(*arrays, placement, platform, **keywords):
            whole = functools.partial(body, **keywords)
            with traced_for(platform):
                if placement is None:
                    return whole(*arrays)
                return sharding.spread(whole, placement, kinds, *arrays)

        run.__name__ = body.__name__  # the program's
        names = ("placement", "platform", *static)
        return late_jit(own_settings()(run), static_argnames=names, **how)

    return compiled


@_program("params", "rows", "rows", "rows", "rows", "rows", static=("method", "kept"))
def start(params, text, budget, seeds, sampling, stops, *, method, kept):
    """Prefills rows."""
    return method.init(
        params, text, budget=budget, seeds=seeds, sampling=sampling, stops=stops, **dict(kept)
    )


@_program("params", "rows", "rows", "rows", static=("method",), donate_argnums=1)
def append(params, decoding, more, budget, *, method):
    """Appends bytes to rows."""
    return method.append(params, decoding, more, budget=budget)


@_program("params", "rows", static=("method", "rounds", "ended"), donate_argnums=1)
def advance(params, decoding, *, method, rounds, ended):
    """Decodes until every row has ended, or `rounds` have run, or `ended` more rows have ended."""
    before, running = decoding.counts.rounds, _running(decoding)

    def until(now):
        enough = jnp.zeros((), bool)
        if rounds is not None:
            enough |= (now.counts.rounds >= before + rounds).any()
        if ended is not None:
            enough |= _running(now) <= running - ended
        return enough

    return method.decode(params, decoding, until=until)


@_program("rows", "rows", static=("times",))
def repeat(decoding, seeds, *, times):
    """Returns each row `times` times, with these seeds."""
    return decoding.repeated(times, seeds)


@_program("rows", static=("rows",))
def idle(one, *, rows):
    """Returns rows like those of `one` that have all ended."""
    wide = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), one)
    return dataclasses.replace(
        wide,
        text=Text(wide.text.ids, jnp.ones(rows, jnp.int32)),
        ended=jnp.full(rows, stopping.BY_LENGTH, jnp.int32),
    )


@_program("rows", "rows", "rows", donate_argnums=0)
def insert(decoding, new, where):
    """Replaces rows; an index beyond the last one replaces none."""
    return jax.tree.map(lambda batch, new: batch.at[where].set(new, mode="drop"), decoding, new)


def _running(decoding):
    return (decoding.ended == stopping.RUNNING).sum()
