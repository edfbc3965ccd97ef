"""Drafters, which propose the bytes that the target verifies. One small file each."""

from bytelax.decode.draft import Draft, DraftPasses, certain, no_passes
from bytelax.decode.drafters.base import Drafter, DraftInput
from bytelax.decode.drafters.block_diffusion import BlockDiffusion
from bytelax.decode.drafters.block_table import BlockInOrder
from bytelax.decode.drafters.draft_block import DraftBlock
from bytelax.decode.drafters.draft_layer import DraftLayer
from bytelax.decode.drafters.draft_model import DraftModel
from bytelax.decode.drafters.draft_sampling import Drawn, draft_of, draw, in_a_row, scanned
from bytelax.decode.drafters.early_exit import EarlyExit
from bytelax.decode.drafters.empty import Empty
from bytelax.decode.drafters.layer_skip import LayerSkip
from bytelax.decode.drafters.lookup import Lookup
from bytelax.decode.drafters.multi_byte import MultiByte, MultiByteTree
from bytelax.decode.drafters.parallel_drafts import ParallelDrafts
from bytelax.decode.drafters.past_boundary import PastBoundary
from bytelax.decode.drafters.two_byte import TwoByte

__all__ = [
    "BlockDiffusion",
    "BlockInOrder",
    "Draft",
    "DraftBlock",
    "DraftInput",
    "DraftLayer",
    "DraftModel",
    "DraftPasses",
    "Drafter",
    "Drawn",
    "EarlyExit",
    "Empty",
    "LayerSkip",
    "Lookup",
    "MultiByte",
    "MultiByteTree",
    "ParallelDrafts",
    "PastBoundary",
    "TwoByte",
    "certain",
    "draft_of",
    "draw",
    "in_a_row",
    "no_passes",
    "scanned",
]
