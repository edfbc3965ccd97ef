"""Plain autoregressive decoding, one byte per round."""

from bytelax.decode.method import Method
from bytelax.options import Ar
from bytelax.systems.fitting import Model


def build(options: Ar, model: Model) -> Method:
    """Returns the method that its options describe."""
    return Method(model.target())
