"""A two-byte-ahead head drafts the byte after the next one."""

from bytelax import decode
from bytelax.decode.method import Method
from bytelax.options import TwoByte
from bytelax.systems.fitting import Model, layers_of


def build(options: TwoByte, model: Model) -> Method:
    """Returns the method that its options describe."""
    layer = options.state_layer
    return Method(model.target(), decode.TwoByte(layers_of(model) if layer is None else layer))
