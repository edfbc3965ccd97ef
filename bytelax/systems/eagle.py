"""EAGLE: one trained layer drafts from features of the whole model."""

from bytelax import decode, vocab
from bytelax.decode.method import Method
from bytelax.options import Eagle
from bytelax.systems.fitting import Model, checked_length


def build(options: Eagle, model: Model) -> Method:
    """Returns the method that its options describe."""
    depth, beam, nodes = checked_length(options.draft_length, model), options.beam, options.nodes
    values = model.config.vocab_size - vocab.OFFSET
    if not 1 <= beam <= values or nodes < 1:
        raise ValueError(
            f"beam and nodes must be at least 1, beam at most {values}; got {beam} and {nodes}"
        )
    if beam == 1:
        drafter = decode.DraftLayer(depth, min_survival=options.min_survival)
    else:
        drafter = decode.DraftLayer(min(nodes, beam * depth), beam, depth, options.min_survival)
    return Method(model.target(), drafter)
