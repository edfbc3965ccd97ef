"""A file for each study; `python -m experiments.studies.NAME` runs it."""
