"""A demo: the same prompts under several methods, with the provenance of each byte."""
