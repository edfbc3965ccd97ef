"""The Byte Latent Transformer (arXiv 2412.09871): local encoder, global transformer, local decoder.

Bytes are grouped into patches. The local encoder pools the bytes of a closed patch into k vectors,
the global transformer runs over closed patches only, and the local decoder at byte t reads the
latent of the latest patch that is closed at t. Hence nothing reads the latent of an open patch.
"""

from bytelax.models.blt.decoder import Context, Decoder, Joint
from bytelax.models.blt.encoder import Encoder, Global
from bytelax.models.blt.model import BLT, ByteCaches, EncodedText, EncodedWindow, Forward
from bytelax.models.configs import BLTConfig
from bytelax.models.patching import Frontier, Patches

__all__ = [
    "BLT",
    "BLTConfig",
    "ByteCaches",
    "Context",
    "Decoder",
    "EncodedText",
    "EncodedWindow",
    "Encoder",
    "Forward",
    "Frontier",
    "Global",
    "Joint",
    "Patches",
]  # fmt: skip
