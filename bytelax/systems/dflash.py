"""DFlash: trained layers on the model's states draft a block in one pass."""

from bytelax import decode
from bytelax.decode.method import Method
from bytelax.options import DFlash
from bytelax.systems.fitting import Model, heads_of


def build(options: DFlash, model: Model) -> Method:
    """Returns the method that its options describe."""
    length = options.draft_length
    length = heads_of(model).draft.block_size if length is None else length
    return Method(model.target(), decode.DraftBlock(length, options.min_survival))
