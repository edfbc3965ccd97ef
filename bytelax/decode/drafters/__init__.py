"""Drafters, which propose the bytes that the target verifies."""
