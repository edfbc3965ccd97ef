"""Layer skipping: a byte transformer drafts without some of its blocks."""

from bytelax import decode
from bytelax.decode.method import Method
from bytelax.options import LayerSkip
from bytelax.systems.fitting import Model, checked_length, layers_of


def build(options: LayerSkip, model: Model) -> Method:
    """Returns the method that its options describe."""
    attention, mlp = tuple(options.skip_attention), tuple(options.skip_mlp)
    if not attention and not mlp:
        attention = mlp = tuple(range(1, layers_of(model) - 1, 2))
    length = checked_length(options.draft_length, model)
    return Method(model.target(), decode.LayerSkip(length, attention, mlp))
