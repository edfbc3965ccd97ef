"""Acceptance rules: pure functions of a draft, the target's distributions and uniform numbers.

No rule takes a random key, so its output distribution can be enumerated exactly.
"""
