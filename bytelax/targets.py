"""A model as what decodes with it: which `Target` serves which module."""

from bytelax.decode.target import Rewindable
from bytelax.decode.targets.blt import BLTTarget
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.blt import BLT
from bytelax.models.byte_lm import ByteLM


def target_for(module: BLT | ByteLM, *, capacity: int, width: int) -> Rewindable:
    """The target of a model.

    Args:
      module: the model.
      capacity: longest text, in bytes.
      width: bytes in a window.
    """
    if isinstance(module, BLT):
        # A window of W bytes closes about W / 4 patches; chunks of half as many again rarely need
        # a second run.
        chunk = 1 + (3 * (width - 1) + 7) // 8
        return BLTTarget(module, capacity, width=width, chunk=chunk)
    return ByteLMTarget(module, capacity, width=width)
