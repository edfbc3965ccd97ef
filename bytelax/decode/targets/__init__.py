"""Models as `Target`s: incremental forward passes that can take back what was rejected."""
