"""The exception that `bytelax.checkpoints` raises."""


class CheckpointError(ValueError):
    """A checkpoint cannot be read or written; the message is one line that says what to do."""
