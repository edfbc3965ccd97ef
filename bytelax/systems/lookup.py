"""Prompt lookup: copies what followed an earlier occurrence of the last bytes."""

from bytelax import decode
from bytelax.decode.method import Method
from bytelax.options import Lookup
from bytelax.systems.fitting import Model, checked_length


def build(options: Lookup, model: Model) -> Method:
    """Returns the method that its options describe."""
    return Method(model.target(), decode.Lookup(checked_length(options.draft_length, model)))
