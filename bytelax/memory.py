"""Checks before a model is read whether its parameters fit in memory."""

import math

import jax
import psutil
from jax.sharding import SingleDeviceSharding

from bytelax.models.narrow import has_int8


def check_fit(
    location: object, params: dict, shardings: dict | None, *, quantize: bool = False
) -> None:
    """Raises an error if parameters need more memory than is free on the devices of this process.

    On accelerators the limit is that of each device. On a CPU it is the free memory of the machine
    with its swap, which all devices share. Caches and activations are not counted.

    Args:
      location: name of the model, for the error.
      params: tree of `jax.ShapeDtypeStruct`, in the dtypes that are read.
      shardings: tree of the parameters' shardings; None puts all of them on one device.
      quantize: whether they become int8, as they are read or afterwards.

    Raises:
      ValueError: the parameters do not fit; the message says what they need and what there is.
    """
    leaves = jax.tree.leaves(params)
    if shardings is None:
        places = [SingleDeviceSharding(jax.local_devices()[0])] * len(leaves)
    else:
        places = jax.tree.leaves(shardings)
    devices = list(places[0].addressable_devices)
    free, where, sharing = _free(devices)
    sizes = [
        sharing * math.prod(place.shard_shape(leaf.shape))
        for leaf, place in zip(leaves, places, strict=True)
    ]
    needed = sum(size * leaf.dtype.itemsize for size, leaf in zip(sizes, leaves, strict=True))
    if needed <= free:
        return
    advice = "use a machine with more, or a mesh of several devices"
    if quantize and not has_int8(params):
        advice = "convert them to the layout huggingface, which is quantized tensor by tensor"
    elif 2 * sum(sizes) <= min(free, 0.9 * needed):
        advice = "load them in bfloat16"
    elif 1.1 * sum(sizes) <= min(free, 0.9 * needed) and shardings is None:
        advice = "quantize them to int8"
    raise ValueError(
        f"the weights of {location} take {_gb(needed)}, and {_gb(free)} of {where} are free; "
        f"{advice}"
    )


def _free(devices: list[jax.Device]) -> tuple[int, str, int]:
    """Returns the number of free bytes, what they are called, and how many devices share them."""
    stats = devices[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats["bytes_in_use"], f"memory on {devices[0]}", 1
    free = psutil.virtual_memory().available + psutil.swap_memory().free
    return free, "memory", len(devices)


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
