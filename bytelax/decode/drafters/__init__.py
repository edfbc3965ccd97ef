"""Drafters: what proposes the bytes that the target verifies. One small file each."""

from bytelax.decode.drafters.base import Draft, Drafter, DraftPasses, no_passes
from bytelax.decode.drafters.empty import Empty

__all__ = ["Draft", "DraftPasses", "Drafter", "Empty", "no_passes"]
