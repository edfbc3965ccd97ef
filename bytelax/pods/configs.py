"""Configurations of a mesh of devices and of the processes that share it.

Like every `configs.py`, this file imports no JAX, so that the command line can show its flags at
once.
"""

import dataclasses

from bytelax.checked import Checked


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig(Checked):
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
        super().__post_init__()
        for axis, size in dataclasses.asdict(self).items():
            if size < 1:
                raise ValueError(f"the mesh axis {axis} needs at least 1 device, got {size}")

    @classmethod
    def parse(cls, text: str) -> "MeshConfig":
        """Parses `data=8,tensor=4`; axes that are left out have size 1.

        Raises:
          ValueError: a part is not an axis with a number, or an axis is named twice.
        """
        axes, sizes = [field.name for field in dataclasses.fields(cls)], {}
        for part in text.split(","):
            axis, _, size = part.partition("=")
            if axis not in axes or axis in sizes or not size.isdecimal():
                raise ValueError(f"{part!r} is not AXIS=NUMBER; the axes are {', '.join(axes)}")
            sizes[axis] = int(size)
        return cls(**sizes)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return ",".join(f"{axis}={size}" for axis, size in dataclasses.asdict(self).items())

    @property
    def size(self) -> int:
        """Total number of devices."""
        return self.data * self.fsdp * self.tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes(Checked):
    """Overrides for the automatic detection of a cluster."""

    coordinator: str | None = None
    """HOST:PORT of the first process, where the port must be free. "auto" lets JAX detect the
    cluster, which a TPU pod without environment variables needs. By default the address comes from
    JAX_COORDINATOR_ADDRESS, SLURM or the variables of a TPU pod; without any of them there is one
    process."""
    num_processes: int | None = None
    """Number of processes; by default JAX_NUM_PROCESSES."""
    process_id: int | None = None
    """Index of this process, from 0; by default JAX_PROCESS_ID."""
