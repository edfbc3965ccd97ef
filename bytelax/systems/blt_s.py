"""BLT-S: the local decoder of a BLT drafts past its patch."""

from bytelax import decode
from bytelax.decode.drafters import Drafter
from bytelax.decode.method import Method
from bytelax.options import BltS
from bytelax.systems.fitting import Model, checked_length, heads_of


def build(options: BltS, model: Model) -> Method:
    """Returns the method that its options describe."""
    return Method(model.target(), _drafter(options, model))


def _drafter(options: BltS, model: Model) -> Drafter:
    length, latent = checked_length(options.draft_length, model), options.latent
    if options.draft_with is None:
        return decode.PastBoundary(length, latent)
    if latent == "refresh":
        raise ValueError("draft_with goes with latent 'reuse' or 'predicted', not 'refresh'")
    if options.draft_with == "lookup":
        return decode.Nested(length, decode.Lookup(min(4, length)), latent)
    ahead = heads_of(model).bytes_ahead
    return decode.Nested(length, decode.MultiByte(min(ahead, length)), latent)
