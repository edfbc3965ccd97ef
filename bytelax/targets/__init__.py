"""The verifiers: one file for each kind of model."""
