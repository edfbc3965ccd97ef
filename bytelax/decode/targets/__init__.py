"""Targets of the models: incremental forward passes that can roll back rejected bytes."""
