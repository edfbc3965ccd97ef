"""The composable pieces of decoding: targets, drafters, acceptance rules, and the one loop."""

from bytelax.decode.acceptance import (
    Acceptance,
    SpecTr,
    Tree,
    Typical,
    block_verification,
    greedy,
    k_seq,
    rejection,
    take_all,
    typical,
)
from bytelax.decode.drafters import (
    BlockDiffusion,
    Draft,
    Drafter,
    DraftLayer,
    DraftModel,
    EarlyExit,
    Empty,
    LayerSkip,
    Lookup,
    MultiByte,
    MultiByteTree,
    PastBoundary,
    Several,
    TwoByte,
    certain,
)
from bytelax.decode.loop import Decoding, decode, round, start
from bytelax.decode.origins import Origin, Origins
from bytelax.decode.sampling import Sampling, process_logits, sample
from bytelax.decode.stopping import Stops
from bytelax.decode.target import Target, Text
from bytelax.decode.targets.blt import BLTTarget
from bytelax.decode.targets.byte_lm import ByteLMTarget

__all__ = [
    "Acceptance",
    "BLTTarget",
    "BlockDiffusion",
    "ByteLMTarget",
    "Decoding",
    "Draft",
    "DraftLayer",
    "DraftModel",
    "Drafter",
    "EarlyExit",
    "Empty",
    "LayerSkip",
    "Lookup",
    "MultiByte",
    "MultiByteTree",
    "Origin",
    "Origins",
    "PastBoundary",
    "Sampling",
    "Several",
    "SpecTr",
    "Stops",
    "Target",
    "Text",
    "Tree",
    "TwoByte",
    "Typical",
    "block_verification",
    "certain",
    "decode",
    "greedy",
    "k_seq",
    "process_logits",
    "rejection",
    "round",
    "sample",
    "start",
    "take_all",
    "typical",
]
