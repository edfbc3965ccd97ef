"""A demo: the same prompts under every method, with the provenance of each byte."""
