"""Checks before a model is read whether its parameters fit in memory."""

import math

import jax
import psutil
from jax.sharding import Sharding


def check_fit(location: object, params: dict, shardings: dict | None) -> None:
    """Raises an error if parameters need more memory than is free on the devices of this process.

    On accelerators the limit is that of each device. On a CPU it is the free memory of the machine
    with its swap, which all devices share. Caches and activations are not counted.

    Args:
      location: name of the model, for the error.
      params: tree of `jax.ShapeDtypeStruct`.
      shardings: tree of the parameters' shardings; None puts all of them on one device.

    Raises:
      ValueError: the parameters do not fit; the message says what they need and what there is.
    """
    leaves = jax.tree.leaves(params)
    places = [None] * len(leaves) if shardings is None else jax.tree.leaves(shardings)
    shapes = [_on_device(leaf.shape, place) for leaf, place in zip(leaves, places, strict=True)]
    sizes = [math.prod(shape) for shape in shapes]
    needed = sum(size * leaf.dtype.itemsize for size, leaf in zip(sizes, leaves, strict=True))
    devices = _devices(places)
    free, where = _free(devices[0])
    if where == "memory":
        needed, sizes = needed * len(devices), [size * len(devices) for size in sizes]
    if needed <= free:
        return
    told = f"the weights of {location} take {_gb(needed)}, and {_gb(free)} of {where} are free"
    smaller = 2 * sum(sizes)
    advice = "; load them in bfloat16" if smaller <= min(free, 0.9 * needed) else ""
    raise ValueError(f"{told}{advice or '; use a machine with more, or a mesh of several devices'}")


def _on_device(shape, place: Sharding | None):
    return shape if place is None else place.shard_shape(shape)


def _devices(places):
    """Returns the devices of this process that hold parameters."""
    if places[0] is None:
        return jax.local_devices()[:1]
    return sorted(places[0].addressable_devices, key=lambda device: device.id)


def _free(device: jax.Device) -> tuple[int, str]:
    """Returns the number of free bytes for arrays on a device, and what they are called."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"], f"memory on {device}"
    return psutil.virtual_memory().available + psutil.swap_memory().free, "memory"


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
