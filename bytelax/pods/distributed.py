"""Starts JAX's distributed runtime, and synchronizes processes.

Every process runs the same program on its own devices. Only the first process writes files and
messages.
"""

import os
from collections.abc import Mapping

import jax
import numpy as np
from jax.experimental import multihost_utils

from bytelax.pods.configs import Processes

_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
_DETECTED = Processes()


def start(processes: Processes = _DETECTED) -> None:
    """Connects to the other processes, if there are any. Call it before any use of a device.

    If the processes cannot find each other, JAX terminates this one after five minutes.

    Raises:
      ValueError: the settings are incomplete or inconsistent.
      OSError: the distributed runtime cannot start, for instance because the port is taken.
    """
    found = settings(processes, os.environ)
    if found is None or jax.distributed.is_initialized():
        return
    # JAX's service would intercept SIGTERM, on which the training loop saves and ends.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(**found)
    except ValueError as error:
        problem = str(error).rstrip(".")
        raise ValueError(
            f"{problem}: outside a known cluster (a TPU pod, SLURM, ...), each process needs the "
            "coordinator, HOST:PORT, and its num_processes and process_id, from 0"
        ) from None
    except jax.errors.JaxRuntimeError as error:
        where = found.get("coordinator_address", "the coordinator")
        raise OSError(f"cannot start at {where}, is its port free? {error}") from None


def settings(processes: Processes, environment: Mapping[str, str]) -> dict | None:
    """Arguments for `jax.distributed.initialize`, or None for a single process.

    JAX takes missing arguments from the cluster's environment variables, and checks them all.

    Raises:
      ValueError: a variable is not a number, or the coordinator has no port.
    """
    given = {
        "coordinator_address": processes.coordinator or environment.get("JAX_COORDINATOR_ADDRESS"),
        "num_processes": _number(processes.num_processes, "JAX_NUM_PROCESSES", environment),
        "process_id": _number(processes.process_id, "JAX_PROCESS_ID", environment),
    }
    known = {name: value for name, value in given.items() if value is not None}
    if not known and not _in_slurm(environment) and not _in_tpu_pod(environment):
        return None
    address = known.get("coordinator_address")
    if address == "auto":
        del known["coordinator_address"]
    elif address and not address.rpartition(":")[2].isdigit():
        raise ValueError(f"every process needs the coordinator as HOST:PORT, not {address!r}")
    return known


def is_first() -> bool:
    """Whether this is the first process, which alone writes files and messages."""
    return jax.process_index() == 0


def wait(name: str) -> None:
    """Blocks until every process has called this."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def of_first(number: int) -> int:
    """Broadcasts an unsigned 32-bit number from the first process."""
    if jax.process_count() == 1:
        return number
    return int(multihost_utils.broadcast_one_to_all(np.uint32(number)))


def anywhere(flag: bool) -> bool:
    """Whether the flag is set in any process. All processes have to call this."""
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.asarray(flag)).any())


def _number(flag, variable, environment):
    if flag is not None or variable not in environment:
        return flag
    try:
        return int(environment[variable])
    except ValueError:
        raise ValueError(f"{variable} is a number, not {environment[variable]!r}") from None


def _in_slurm(environment):
    there = all(name in environment for name in _SLURM)
    return (
        there and environment["SLURM_NTASKS"].isdecimal() and int(environment["SLURM_NTASKS"]) > 1
    )


def _in_tpu_pod(environment):
    return "," in environment.get("TPU_WORKER_HOSTNAMES", "") or (
        "MEGASCALE_COORDINATOR_ADDRESS" in environment
    )
