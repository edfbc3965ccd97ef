"""How the processes of a cluster find each other."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes:
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
