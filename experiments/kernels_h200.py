"""The kernels on an NVIDIA H200: numbers, the law of exactness, and time against the floor.

    python experiments/kernels_h200.py --json experiments/results/kernels_h200.json

The floor of a call is the bytes it must read over the bandwidth measured for a plain copy. XLA is
the reference compiled for the device; cuDNN is `jax.nn.dot_product_attention`, whose layout needs
a copy of the caches. Exit status 1 where numbers or bits are wrong.
"""

import argparse
import functools
import json
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from bytelax_kernels.unmask import Rule, unmask
from bytelax_kernels.verify_attention import verify_attention
from bytelax_kernels.verify_attention.sight import Sight, positions, visible

# name: batch, window, heads, kv_heads, slots, dim, length of the texts, tree
ATTENTION = {
    "local, B 1": (1, 9, 16, 16, 528, 64, 4000, False),
    "local, B 8": (8, 9, 16, 16, 528, 64, 4000, False),
    "local, B 64": (64, 9, 16, 16, 528, 64, 4000, False),
    "global, B 1, 1000 of 4128": (1, 9, 16, 16, 4128, 128, 1000, False),
    "global, B 8, 1000 of 4128": (8, 9, 16, 16, 4128, 128, 1000, False),
    "global, B 8, full": (8, 9, 16, 16, 4128, 128, 4120, False),
    "grouped, B 8, full": (8, 8, 32, 8, 8192, 128, 8180, False),
    "tree, B 8": (8, 32, 16, 16, 4128, 64, 4000, True),
}
UNMASK = {
    "confidence, greedy": (8, 16, Rule("confidence", 0.7), False),
    "entropy, drawn": (8, 16, Rule("entropy", 1.0), True),
    "entropy, drawn, B 64, C 32": (64, 32, Rule("entropy", 1.0), True),
}


def seconds(call, *args, repeats=200) -> float:
    """Of one call, without the host: many in one program, each fed by the one before."""

    @jax.jit
    def many(args):
        def once(_, args):
            out = call(*args)
            # The result flows into the next call's first argument and leaves it as it is.
            return (args[0] + 0 * jnp.nan_to_num(out.astype(args[0].dtype)), *args[1:])

        return jax.lax.fori_loop(0, repeats, once, args)

    jax.block_until_ready(many(args))
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        jax.block_until_ready(many(args))
        times.append((time.perf_counter() - begin) / repeats)
    return min(times)


def bandwidth() -> float:
    """Bytes a second that a copy of 4 GiB reads and writes."""
    big = jnp.zeros(2**30, jnp.float32)
    return 2 * big.nbytes / seconds(lambda x: x + 1, big, repeats=10)


def texts(batch, window, heads, kv_heads, slots, dim, length, tree, seed=0):
    """Random caches and queries at the end of texts of about `length` positions."""
    rng = np.random.default_rng(seed)
    shapes = [(batch, window, heads, dim), *[(batch, kv_heads, slots, dim)] * 2]
    arrays = tuple(jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in shapes)
    newest = jnp.asarray(length - 1 - rng.integers(0, 50, batch), jnp.int32)
    own = newest[:, None] - window + 1 + jnp.arange(window)
    first = jnp.maximum(0, own - (slots - window if length > slots else length) + 1)
    ancestors = None
    last = own
    if tree:
        last = jnp.repeat(newest[:, None] - window, window, axis=1)
        flags = np.tril(rng.random((batch, window, window)) < 0.3) | np.eye(window, dtype=bool)
        ancestors = jnp.asarray(flags)
    return arrays, Sight(first, last, newest, ancestors)


def attend(queries, keys, values, sight, implementation):
    return verify_attention(queries, keys, values, **sight._asdict(), implementation=implementation)


def cudnn(queries, keys, values, sight):
    mask = visible(sight, positions(sight.newest, keys.shape[2]))[:, None]
    return jax.nn.dot_product_attention(
        queries, keys.swapaxes(1, 2), values.swapaxes(1, 2), mask=mask, implementation="cudnn"
    )


def read_bytes(keys, sight) -> int:
    """Bytes of the keys and values that some query sees."""
    seen = visible(sight, positions(sight.newest, keys.shape[2])).any(1)
    line = keys.shape[1] * keys.shape[3] * keys.dtype.itemsize
    return int(seen.sum()) * 2 * line


def check_attention(name, shape) -> dict:
    arrays, sight = texts(*shape)
    run = jax.jit(functools.partial(attend, implementation="gpu"))
    wanted = jax.jit(functools.partial(attend, implementation="reference"))
    out = np.asarray(run(*arrays, sight), np.float32)
    error = np.abs(out - np.asarray(wanted(*arrays, sight), np.float32)).max()
    return {"error": float(error), "exact": bool(error < 1e-2 and same_bits(run, arrays, sight))}


def same_bits(run, arrays, sight) -> bool:
    """Queries in reverse rows, other rows of the batch, garbage out of sight."""
    queries, keys, values = arrays
    out = np.asarray(run(*arrays, sight))
    good = np.array_equal(np.asarray(run(*arrays, sight)), out)
    if sight.ancestors is None:
        back = sight._replace(first=sight.first[:, ::-1], last=sight.last[:, ::-1])
        again = run(queries[:, ::-1], keys, values, back)
        good &= np.array_equal(np.asarray(again)[:, ::-1], out)
    others = [part.at[1:].set(part[1:] * 2) for part in arrays]
    good &= np.array_equal(np.asarray(run(*others, sight))[0], out[0])
    hidden = ~visible(sight, positions(sight.newest, keys.shape[2])).any(1)[:, None, :, None]
    garbage = [jnp.where(hidden, jnp.asarray(1e4, keys.dtype), part) for part in (keys, values)]
    return bool(good and np.array_equal(np.asarray(run(queries, *garbage, sight)), out))


def time_attention(shape, per_second) -> dict:
    arrays, sight = texts(*shape)
    ways = {
        "kernel": functools.partial(attend, implementation="gpu"),
        "xla": functools.partial(attend, implementation="reference"),
        "cudnn": cudnn,
    }
    floor = read_bytes(arrays[1], sight) / per_second
    micro = {"floor": 1e6 * floor}
    for name, way in ways.items():
        try:
            micro[name] = 1e6 * seconds(way, *arrays, sight)
        except Exception as error:  # cuDNN refuses some shapes
            print(f"  {name}: {str(error)[:100]}")
    return {f"{name}_us": round(value, 2) for name, value in micro.items()}


def check_unmask(batch, cells, rule, drawn) -> dict:
    rng = np.random.default_rng(1)
    logits = jnp.asarray(3 * rng.normal(size=(batch, cells, 260)), jnp.float32)
    ids = jnp.full((batch, cells), 260, jnp.int32)
    masked = jnp.asarray(rng.random((batch, cells)) < 0.8)
    how = {}
    if drawn:
        uniforms = jnp.asarray(rng.random((batch, cells)), jnp.float32)
        how = {"law": jax.nn.log_softmax(logits), "uniforms": uniforms}

    def run(logits, implementation):
        return unmask(logits, ids, masked, rule=rule, implementation=implementation, **how)

    made, wanted = (jax.jit(run, static_argnums=1)(logits, x) for x in ("gpu", "reference"))
    exact = all(np.array_equal(getattr(made, x), getattr(wanted, x)) for x in ("ids", "chosen"))
    error = np.abs(np.asarray(made.confidence) - np.asarray(wanted.confidence)).max()
    row = {"error": float(error), "exact": exact and bool(error < 1e-5)}
    for name, implementation in (("kernel", "gpu"), ("xla", "reference")):

        def fed(logits, implementation=implementation):
            return run(logits, implementation).confidence[..., None]

        row[f"{name}_us"] = round(1e6 * seconds(fed, logits), 2)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    device = jax.devices()[0]
    if device.platform != "gpu":
        print(f"needs an NVIDIA GPU, found {device}", file=sys.stderr)
        return 2
    per_second = bandwidth()
    print(f"{device.device_kind}: {per_second / 1e12:.2f} TB/s")
    rows = {}
    for name, shape in ATTENTION.items():
        rows[f"attention, {name}"] = {
            **check_attention(name, shape),
            **time_attention(shape, per_second),
        }
    for name, shape in UNMASK.items():
        rows[f"unmask, {name}"] = check_unmask(*shape)
    for name, row in rows.items():
        print(f"{name:36s} {row}", flush=True)
    if args.json:
        facts = {"device": device.device_kind, "jax": jax.__version__, "bandwidth": per_second}
        args.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    return int(not all(row["exact"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
