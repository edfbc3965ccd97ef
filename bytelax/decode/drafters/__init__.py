"""Drafters: what proposes the bytes that the target verifies. One small file each."""

from bytelax.decode.drafters.base import Draft, Drafter, DraftPasses, no_passes
from bytelax.decode.drafters.block_diffusion import BlockDiffusion
from bytelax.decode.drafters.compose import chain, extend_with
from bytelax.decode.drafters.draft_length import by_batch, stop_below
from bytelax.decode.drafters.draft_model import DraftModel
from bytelax.decode.drafters.empty import Empty
from bytelax.decode.drafters.lookup import Lookup
from bytelax.decode.drafters.padding import padded
from bytelax.decode.drafters.past_boundary import PastBoundary

__all__ = [
    "BlockDiffusion",
    "Draft",
    "DraftModel",
    "DraftPasses",
    "Drafter",
    "Empty",
    "Lookup",
    "PastBoundary",
    "by_batch",
    "chain",
    "extend_with",
    "no_passes",
    "padded",
    "stop_below",
]
