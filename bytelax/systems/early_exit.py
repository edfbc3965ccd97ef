"""Early exit: the first layers of a byte transformer draft, and all of them verify."""

import jax

from bytelax import decode
from bytelax.decode.method import Method
from bytelax.options import Composed, EarlyExit
from bytelax.systems.fitting import Model, checked_length, heads_of, layers_of


def build(options: EarlyExit | Composed, model: Model) -> Method:
    """Returns the method that its options describe.

    It drafts with the exit head nearest to half the depth, or without one at half the depth.
    """
    half = max(layers_of(model) // 2, 1)
    exits, layer = heads_of(model).exits, options.exit_layer
    if layer is None:
        layer = min(exits or (half,), key=lambda layer: abs(layer - half))
    two_byte = isinstance(options, Composed)
    head = None if isinstance(options, Composed) else options.exit_head
    drafter = decode.EarlyExit(
        checked_length(options.draft_length, model),
        layer,
        head=layer in exits if head is None else head,
        two_byte=two_byte,
        hand_over=_hands_over(options, model),
    )
    return Method(model.target(), drafter)


def _hands_over(options: EarlyExit | Composed, model: Model) -> bool:
    """Whether verification continues from the exit's states; by default only in float32.

    In narrower dtypes these states would give other bytes than plain decoding.
    """
    exact = all(leaf.dtype == "float32" for leaf in jax.tree.leaves(model.held))
    if options.verify_from == "exit" and not exact:
        raise ValueError(
            "verify_from 'exit' needs float32 weights: in a narrower dtype it would write "
            "other bytes than plain decoding; load the model so, or verify from the embedding"
        )
    return exact and options.verify_from != "embedding"
