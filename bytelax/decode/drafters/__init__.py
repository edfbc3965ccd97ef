"""Drafters: what proposes the bytes that the target verifies. One small file each."""

from bytelax.decode.drafters.base import Draft, Drafter, DraftPasses, no_passes
from bytelax.decode.drafters.block_diffusion import BlockDiffusion
from bytelax.decode.drafters.empty import Empty
from bytelax.decode.drafters.past_boundary import PastBoundary

__all__ = [
    "BlockDiffusion",
    "Draft",
    "DraftPasses",
    "Drafter",
    "Empty",
    "PastBoundary",
    "no_passes",
]
