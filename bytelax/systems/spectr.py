"""SpecTr: several drafts of a smaller model, among which optimal transport selects."""

from bytelax import decode
from bytelax.decode.method import Method
from bytelax.options import SpecTr
from bytelax.systems import draft_model
from bytelax.systems.fitting import Model


def build(options: SpecTr, model: Model) -> Method:
    """Returns the method that its options describe, whose draft model is loaded."""
    one = draft_model.drafter(options, model)
    return Method(model.target(), decode.ParallelDrafts(one, options.drafts))
