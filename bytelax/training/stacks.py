"""How a training step goes through stacks of blocks; the models need not know of it."""

import contextlib
import functools
from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp

from bytelax.models import kv_cache
from bytelax.models.layers import Block, Transformer


@contextlib.contextmanager
def rematerialized(enabled: bool = True) -> Iterator[None]:
    """Within this context every transformer block that is applied keeps only its input."""
    inside = False

    def intercept(call, args, keywords, context):
        nonlocal inside
        block = context.module
        if inside or not isinstance(block, Block) or context.method_name != "__call__":
            return call(*args, **keywords)

        def apply(variables, *args):
            nonlocal inside
            inside = True
            try:
                return block.clone(parent=None).apply(variables, *args, **keywords)
            finally:
                inside = False

        return jax.checkpoint(apply)(block.variables, *args)

    with nn.intercept_methods(intercept) if enabled else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def scanned(enabled: bool = True) -> Iterator[None]:
    """Within this context a stack that reads whole texts is a loop over its blocks.

    XLA then compiles one block instead of all of them. The parameters stay apart, a tree a block,
    and are stacked anew at every pass: a copy, which is little beside a step's work but not beside
    that of a window of bytes. So decoding never scans: there it would copy the caches as well. Nor
    does the decoder of a BLT, whose blocks stand behind cross-attention.
    """

    def intercept(call, args, keywords, context):
        stack = context.module
        whole = isinstance(stack, Transformer) and context.method_name == "__call__"
        if not whole or not _plain(*args, **keywords):
            return call(*args, **keywords)
        span = keywords["span"]
        positions = span.positions if span.turns is None else span.turns
        attend = functools.partial(kv_cache.attend, span=span)
        block = Block(stack.config, stack.precision, parent=None)
        params = stack.variables["params"]
        each = [params[f"layers_{index}"] for index in range(stack.config.layers)]

        def step(x, params):
            x, _ = block.apply({"params": params}, x, None, positions=positions, attend=attend)
            return x, None

        x, _ = jax.lax.scan(step, args[0], jax.tree.map(lambda *x: jnp.stack(x), *each))
        return x, None

    with nn.intercept_methods(intercept) if enabled else contextlib.nullcontext():
        yield


def _plain(x, caches=None, *, span, **other):
    """Whether a stack is called on whole texts, with all of its blocks."""
    return caches is None and not any(value is not None for value in other.values())
