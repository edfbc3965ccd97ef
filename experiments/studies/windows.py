"""What a pass over W bytes costs a byte transformer, beside W passes over one.

"From the exit": verifying from the states of the exit at half the depth. The published shape (85M,
12 layers of width 768) has random weights. The last column is one pass over the whole text, without
caches.

    python -m experiments.studies.windows
"""

import dataclasses
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import load, vocab
from bytelax.decode import Text
from bytelax.model import Model
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import TransformerConfig
from bytelax.targets.byte_lm import ByteLMTarget, FirstLayers
from experiments import study
from experiments.study import Column

PUBLISHED = TransformerConfig(
    dim=768, layers=12, heads=12, kv_heads=12, head_dim=64, ffn_dim=2048, window=None
)
CONTEXT, WIDTHS = 512, (1, 2, 4, 8, 16, 32)
COLUMNS = [
    Column("model", "model"),
    Column("W", "width"),
    Column("ms", "ms", ".2f"),
    Column("W passes over one, in passes over W", "cheaper", ".2f"),
    Column("from the exit, ms", "exit_ms", ".2f"),
    Column("without caches, ms", "uncached_ms", ".2f"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--repeats", type=int, default=5)
    options = options.parse_args()
    if options.smoke:
        options.repeats = 1
    models = ["tiny-lm"] if options.smoke else ["tiny-lm", "85M"]
    study.run(
        "windows", options, [{"model": name} for name in models],
        lambda setting: measure(setting["model"], options.repeats),
        conditions={"context": CONTEXT, "repeats": options.repeats},
    )  # fmt: skip


def measure(name: str, repeats: int) -> list[dict]:
    """A row for each W."""
    model = published_shape() if name == "85M" else load(name, dtype="float32")
    ids = np.full((1, CONTEXT), vocab.OFFSET + 97, np.int32)
    ids[:, 0] = vocab.BOS
    text = Text(jnp.asarray(ids), jnp.asarray([CONTEXT]))
    exit_layer = model.config.trunk.layers // 2
    target = ByteLMTarget(model.module, capacity=CONTEXT + 64, window=max(WIDTHS))
    state = jax.jit(target.prefill)(model.params, text)

    def whole(state, window):
        return target.extend(model.params, state, window)

    def from_the_exit(state, window):
        bound = model.module.bind({"params": model.params})
        computed = FirstLayers(bound.embed(window), state.caches[:exit_layer], exit_layer)
        return target.extend(model.params, dataclasses.replace(state, computed=computed), window)

    parallel = jax.jit(lambda ids: model.module.apply({"params": model.params}, ids)[:, -1])
    parallel(jnp.asarray(ids)).block_until_ready()
    begin = time.perf_counter()
    for _ in range(3):
        parallel(jnp.asarray(ids)).block_until_ready()
    uncached = (time.perf_counter() - begin) / 3
    rows = []
    for width in WIDTHS:
        taken, exit_ = (
            timed(target, step, state, width, repeats=repeats) for step in (whole, from_the_exit)
        )
        one = rows[0]["ms"] if rows else 1e3 * taken
        rows.append({
            "width": width, "ms": 1e3 * taken, "cheaper": width * one / (1e3 * taken),
            "exit_ms": 1e3 * exit_, "uncached_ms": None if rows else 1e3 * uncached,
        })  # fmt: skip
    return rows


def timed(target, step, state, width: int, *, repeats: int, loops: int = 20) -> float:
    """Median seconds of a pass, many of them inside one program so that calls cost nothing."""
    window = jnp.full((1, width), vocab.OFFSET + 97, jnp.int32)

    @jax.jit
    def many(state, window):
        def body(_, carry):
            state, window = carry
            logits, trial = step(state, window)
            # The next pass depends on the result of this one.
            shift = (logits[0, 0, 0] > 1e30).astype(jnp.int32)
            return target.commit(trial, jnp.zeros(1, jnp.int32)), window + shift

        return jax.lax.fori_loop(0, loops, body, (state, window))

    jax.block_until_ready(many(state, window))
    times = []
    for _ in range(max(repeats, 3)):
        begin = time.perf_counter()
        jax.block_until_ready(many(state, window))
        times.append((time.perf_counter() - begin) / loops)
    return statistics.median(times)


def published_shape() -> Model:
    """Twelve layers of width 768, random weights."""
    module = ByteLM(ByteLMConfig(trunk=PUBLISHED, max_bytes=2048))
    init = jax.jit(module.init)
    return Model(module, init(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"])


if __name__ == "__main__":
    main()
