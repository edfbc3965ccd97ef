"""The flags of commands that read texts of any length in windows."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class WindowFlags:
    """How texts are read in windows; the fields are keywords of `score` and `patches`."""

    window: int | None = None
    """Most bytes that the model sees at once; by default 1023, or its context if shorter."""
    stride: int | None = None
    """Bytes by which windows move along a longer text; by default half of the window."""
    batch: int = 8
    """Windows that are read together."""
