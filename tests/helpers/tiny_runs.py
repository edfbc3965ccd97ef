"""A byte transformer that learns in a second, for the tests of the loop.

As a script: `tiny_runs.py OUT [--data 2 --fsdp 2 --tensor 2] [--pace SECONDS]` trains it
in OUT, and waits that long before each batch. Processes that are told of each other by
JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID train together, and each notes in
OUT/examples-ID.jsonl what it has read.
"""

import argparse
import dataclasses
import json
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bytelax import vocab
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import TransformerConfig
from bytelax.pods import distributed, global_arrays, sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.training import runs
from bytelax.training.configs import RunConfig
from bytelax.training.objectives import Objective
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.runs import TrainConfig

TEXT = b"the cat sat on the mat; the dog sat on the log; the hen sat in the pen. " * 40
WINDOW, BATCH = 32, 8
TRUNK = TransformerConfig(dim=16, layers=2, heads=2, kv_heads=2, head_dim=8, ffn_dim=32)
CONFIG = ByteLMConfig(trunk=TRUNK)


@dataclasses.dataclass(frozen=True)
class NextByte(Objective):
    """Mean next-byte loss. `frozen` is the start of the paths that do not train."""

    module: ByteLM = ByteLM(CONFIG)
    frozen: tuple[str, ...] | None = None
    noise: float = 0.0  # chance of a byte to be replaced by a random one, so that keys matter

    def loss(self, params, ids, key):
        heard, told = ids[:, :-1], ids[:, 1:]
        if self.noise:
            which, what = jax.random.split(key)
            noisy = jax.random.bernoulli(which, self.noise, heard.shape)
            heard = jnp.where(noisy, jax.random.randint(what, heard.shape, 4, 260), heard)
        logits = self.module.apply({"params": params}, heard)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, told)
        count = jnp.float32(each.size)
        bits = each.sum() / jnp.log(2)
        return each.mean(), {"bits_per_byte": (bits, count)}

    def trainable(self, path):
        return self.frozen is None or path[: len(self.frozen)] != self.frozen


def batches(split, step, *, batch=BATCH, end=None, pace=0.0):
    """Windows of TEXT: example i begins at 37 i, wherever that falls. Never ends unless told so."""
    ids = np.asarray(vocab.encode(TEXT, bos=False), np.int32)
    shift = 0 if split == "train" else 11
    while end is None or step < end:
        begins = (np.arange(step * batch, (step + 1) * batch) * 37 + shift) % (
            len(ids) - WINDOW - 1
        )
        step += 1
        time.sleep(pace)
        yield np.stack([ids[b : b + WINDOW + 1] for b in begins])


def config(*, steps=12, mesh=None, accumulate=1, peak=1e-2, cooldown=None, **run):
    defaults = {"log_every": 1, "validate_every": 3, "validation_batches": 1, "save_every": 3}
    return TrainConfig(
        optimizer=OptimizerConfig(
            steps=steps, peak=peak, warmup=2, accumulate=accumulate, cooldown=cooldown
        ),
        mesh=mesh or MeshConfig(),
        run=RunConfig(**(defaults | run)),
    )


def assert_same(left, right):
    """The same parameters, to the last bit."""
    jax.tree.map(np.testing.assert_array_equal, left, right)


def of_process(mesh, out, **options):
    """Batches of the rows that this process has; a line of JSON tells of each."""

    def batches_of(split, start):
        rows = global_arrays.rows_here(mesh, BATCH)
        for step, ids in enumerate(
            batches(split, start, **options if split == "train" else {}), start
        ):
            if split == "train":
                first = step * BATCH
                sums = {int(first + row): int(ids[row].sum()) for row in rows}
                with open(out / f"examples-{jax.process_index()}.jsonl", "a") as file:
                    file.write(json.dumps({"first": first, "sums": sums}) + "\n")
            yield ids[rows]

    return batches_of


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--pace", type=float, default=0.0)
    for axis in ("data", "fsdp", "tensor"):
        parser.add_argument(f"--{axis}", type=int, default=1)
    args = parser.parse_args()
    distributed.start()
    mesh = MeshConfig(data=args.data, fsdp=args.fsdp, tensor=args.tensor)
    runs.train(
        config(mesh=mesh),
        NextByte(noise=0.1),
        of_process(sharding.make_mesh(mesh), args.out, pace=args.pace),
        args.out,
    )


if __name__ == "__main__":
    main()
