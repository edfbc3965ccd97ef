"""Flax Linen models: pure `init` and `apply`, no decoding method is known here."""
