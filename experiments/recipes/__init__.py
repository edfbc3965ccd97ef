"""How the models of studies are trained: `python -m experiments.recipes.NAME STAGE`."""
