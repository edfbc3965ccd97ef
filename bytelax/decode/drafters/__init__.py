"""Drafters: what proposes the bytes that the target verifies. One small file each."""

from bytelax.decode.drafters.base import Draft, Drafter
from bytelax.decode.drafters.empty import Empty

__all__ = ["Draft", "Drafter", "Empty"]
