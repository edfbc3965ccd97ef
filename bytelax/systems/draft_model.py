"""Speculative decoding with a smaller model that drafts."""

from bytelax import decode
from bytelax.decode.method import Method
from bytelax.options import DraftModel
from bytelax.systems.fitting import Model, checked_length


def build(options: DraftModel, model: Model) -> Method:
    """Returns the method that its options describe, whose draft model is loaded."""
    return Method(model.target(), drafter(options, model))


def drafter(options: DraftModel, model: Model) -> decode.DraftModel:
    """Returns the drafter of these options."""
    length = checked_length(options.draft_length, model)
    return decode.DraftModel(options.draft_model.target(), length)
