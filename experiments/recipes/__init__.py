"""How models are trained: `python -m experiments.recipes STAGE`, a TOML file for each stage."""
