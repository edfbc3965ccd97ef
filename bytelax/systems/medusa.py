"""Medusa: multi-byte heads draft all bytes at once, as a chain or a tree."""

import itertools
import operator

from bytelax import decode, vocab
from bytelax.decode.method import Method
from bytelax.options import Medusa
from bytelax.systems.fitting import Model, heads_of


def build(options: Medusa, model: Model) -> Method:
    """Returns the method that its options describe."""
    length, branches, nodes = options.draft_length, tuple(options.branches), options.nodes
    if not branches:
        ahead = heads_of(model).bytes_ahead
        return Method(model.target(), decode.MultiByte(ahead if length is None else length))
    if length is not None:
        raise ValueError("a tree takes its depth from branches: no draft_length")
    values = model.config.vocab_size - vocab.OFFSET
    if nodes < 1 or not all(1 <= children <= values for children in branches):
        raise ValueError(
            f"a node has 1..{values} branches, a tree 1 node or more; got {branches}, nodes {nodes}"
        )
    whole = sum(itertools.accumulate(branches, operator.mul))
    return Method(model.target(), decode.MultiByteTree(branches, min(nodes, whole)))
