"""Plain autoregressive decoding, one byte per round."""

import dataclasses

from bytelax.decode.method import Method
from bytelax.options import Ar
from bytelax.systems.fitting import Model
from bytelax.targets.blt import BLTTarget


def build(options: Ar, model: Model) -> Method:
    """Returns the method that its options describe."""
    target = model.target()
    if options.synchronous:
        if not isinstance(target, BLTTarget):
            raise ValueError("synchronous needs a Byte Latent Transformer, not a byte model")
        target = dataclasses.replace(target, synchronous=float(options.synchronous))
    return Method(target)
