"""Configuration of a mesh of devices."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """Number of devices along each axis of the mesh.

    Attributes:
      data: data parallelism: replicas of the model, each with its share of the batch.
      fsdp: fully sharded data parallelism: the batch is split along this axis too, and so are the
        parameters in training. Devices gather parameters when they need them.
      tensor: tensor parallelism: attention heads and hidden units are split along this axis.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self):
        for axis, size in dataclasses.asdict(self).items():
            if size < 1:
                raise ValueError(f"the mesh axis {axis} needs at least 1 device, got {size}")

    @property
    def size(self) -> int:
        """Total number of devices."""
        return self.data * self.fsdp * self.tensor
