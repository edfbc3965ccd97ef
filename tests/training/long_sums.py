"""The sum of jax-ml/jax#39103 within programs that train, validate and score.

As a script: `long_sums.py OUT` trains in OUT, and prints by how much the sum was off in each.
"""

import json
import pathlib
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp

from bytelax import vocab
from bytelax.model import Model
from bytelax.models.execution import Execution
from bytelax.scoring import score_continuations
from bytelax.training import runs
from tests.helpers import tiny_runs

ROWS = 32_769


def off_by(ids):
    """The square of the number of the last row, less what it should be."""
    numbers = jnp.arange(ROWS, dtype=jnp.float32) + 0 * ids.sum()  # or XLA knows the result
    x = jnp.zeros((ROWS, 3)).at[:, 0].set(numbers)
    last = jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(x)[-1]
    return last - (ROWS - 1.0) ** 2


class Objective(tiny_runs.NextByte):
    def loss(self, params, ids, key):
        value, metrics = super().loss(params, ids, key)
        return value, metrics | {"off_by": (off_by(ids), jnp.ones(()))}


class Scored(nn.Module):
    """A model that is as sure as the sum is right."""

    execution: Execution = Execution()
    config = tiny_runs.CONFIG

    def predict(self, ids):
        logits = jnp.full((*ids.shape, vocab.SIZE), -1e9).at[..., 4 + ord("b")].set(0)
        return logits.at[..., -1].set(jnp.where(off_by(ids) == 0, -1e9, 1e9)), None


def main(out):
    config = tiny_runs.config(steps=3, validate_every=3)
    runs.train(config, Objective(), tiny_runs.batches, out)
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    found = {f"{line['step']} {line['split']}": line["off_by"] for line in lines}
    (scored,) = score_continuations(Model(Scored(), {}), [(b"a", b"b")])
    print(json.dumps(found | {"scored": scored.log_prob}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
