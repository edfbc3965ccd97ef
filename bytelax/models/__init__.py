"""Flax Linen models with pure `init` and `apply`, independent of any decoding method."""
