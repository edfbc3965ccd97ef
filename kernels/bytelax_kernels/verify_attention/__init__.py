"""Attention of a window of queries against a cache addressed by position."""

from bytelax_kernels.verify_attention.api import verify_attention

__all__ = ["verify_attention"]
