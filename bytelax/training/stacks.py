"""How a training step goes through stacks of blocks; the models need not know of it."""

import contextlib
from collections.abc import Iterator

import flax.linen as nn
import jax
import jax.numpy as jnp

from bytelax.models.blt import Decoder
from bytelax.models.layers import ALL, Block, Part, Transformer


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
    does a decoder that reads latents in its first layer only.
    """

    def intercept(call, args, keywords, context):
        module, method = context.module, context.method_name
        if isinstance(module, Transformer) and method == "__call__":
            return _stack(module, call, *args, **keywords)
        if isinstance(module, Decoder) and method == "layers":
            return _decoder_layers(module, call, *args, **keywords)
        return call(*args, **keywords)

    with nn.intercept_methods(intercept) if enabled else contextlib.nullcontext():
        yield


def _stack(stack, call, x, caches=None, *, span, block=None, part=ALL):
    how = {"span": span, "block": block}
    if caches is not None or part != ALL or stack.config.layers == 1:
        return call(x, caches, part=part, **how)
    first_block = stack.clone(parent=None)

    def step(x, params):
        return first_block.apply({"params": params}, x, part=Part(last=1), **how)

    params = stack.variables["params"]
    layers = [{"layers_0": params[f"layers_{index}"]} for index in range(stack.config.layers)]
    return jax.lax.scan(step, x, _stacked(layers))


def _decoder_layers(decoder, call, x, contexts, caches, *, first=0, depth=None, **how):
    run = range(decoder.config.decoder.layers)[first:depth]
    if caches is not None or len(run) == 1 or decoder.config.decoder_cross_attention == "first":
        return call(x, contexts, caches, first=first, depth=depth, **how)
    first_layer = decoder.clone(parent=None)

    def step(x, layer):
        params, context = layer
        variables = {"params": params}
        return first_layer.apply(variables, x, (context,), None, depth=1, method="layers", **how)

    params = decoder.variables["params"]
    trunk = params["trunk"]
    layers = [
        {"cross_0": params[f"cross_{index}"], "trunk": {"layers_0": trunk[f"layers_{index}"]}}
        for index in run
    ]
    return jax.lax.scan(step, x, (_stacked(layers), _stacked(contexts[first:depth])))


def _stacked(layers):
    return jax.tree.map(lambda *each: jnp.stack(each), *layers)
