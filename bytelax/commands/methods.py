"""The flags of `bytelax methods`."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Methods:
    """List the decoding methods and their options."""

    json: bool = False
    """Print JSON."""
    markdown: bool = False
    """Print the reference as Markdown, as in docs/methods.md."""
