"""A matrix laid out for a compiled kernel, as all platforms hold it."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Panels:
    """A matrix as a kernel reads it: `kernel`, whose first `contracted` axes are its rows.

    Attributes:
      values: what the kernel reads, in a layout of each platform.
      shape: of the kernel.
      contracted: number of its first axes that are contracted.
      gated: whether the first of the other axes is a pair, a gate and what it gates.
    """

    values: Any
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    contracted: int = dataclasses.field(metadata={"static": True})
    gated: bool = dataclasses.field(metadata={"static": True})

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def features(self) -> tuple[int, ...]:
        """The axes of the kernel that a product appends."""
        return self.shape[self.contracted :]
