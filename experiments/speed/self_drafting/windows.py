"""What a window of W bytes costs beside W windows of one, and what handing states over saves."""

import dataclasses
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.decode import ByteLMTarget, Text
from bytelax.decode.targets.byte_lm import FirstLayers
from bytelax.model import Model
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import TransformerConfig
from experiments.harness import study

PUBLISHED = TransformerConfig(
    dim=768, layers=12, heads=12, kv_heads=12, head_dim=64, ffn_dim=2048, window=None
)


def seconds(model, repeats, context=512):
    """Median seconds of a pass over W bytes behind `context` bytes, for several W."""
    ids = np.full((1, context), vocab.OFFSET + 97, np.int32)
    ids[:, 0] = vocab.BOS
    text = Text(jnp.asarray(ids), jnp.asarray([context]))
    exit_layer = model.config.trunk.layers // 2
    target = ByteLMTarget(model.module, capacity=context + 64, window=32)
    state = jax.jit(target.prefill)(model.params, text)

    def whole(state, window):
        return target.extend(model.params, state, window)

    def from_the_exit(state, window):
        bound = model.module.bind({"params": model.params})
        computed = FirstLayers(bound.embed(window), state.caches[:exit_layer], exit_layer)
        state = dataclasses.replace(state, computed=computed)
        return target.extend(model.params, state, window)

    taken = {
        name: {
            str(width): timed(target, step, state, width, repeats=repeats)
            for width in (1, 2, 4, 8, 16, 32)
        }
        for name, step in (("whole", whole), ("from the exit", from_the_exit))
    }
    parallel = jax.jit(lambda ids: model.module.apply({"params": model.params}, ids)[:, -1])
    parallel(jnp.asarray(ids)).block_until_ready()
    begin = time.perf_counter()
    for _ in range(3):
        parallel(jnp.asarray(ids)).block_until_ready()
    taken["no cache"] = (time.perf_counter() - begin) / 3
    return {"seconds": taken}


def timed(target, step, state, width, *, repeats, loops=20):
    """Median seconds of a pass, many of them inside one program so that calls cost nothing."""
    window = jnp.full((1, width), vocab.OFFSET + 97, jnp.int32)

    @jax.jit
    def many(state, window):
        def body(_, carry):
            state, window = carry
            logits, trial = step(state, window)
            # The next pass hangs on this one's result.
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


def published_shape():
    """Twelve layers of width 768, random weights."""
    module = ByteLM(ByteLMConfig(trunk=PUBLISHED, max_bytes=2048))
    init = jax.jit(module.init)
    return Model(module, init(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"])


def table(report):
    lines = ["# A window of W bytes", "", f"Batch 1, {study.machine(report)}."]
    for row in report["rows"]:
        passes = row["seconds"]
        whole, rest, uncached = passes["whole"], passes["from the exit"], passes["no cache"]
        one = whole["1"]
        header = ("W", "ms", "beside W = 1", "beside W passes of one", "from the exit, ms")
        lines += [
            "",
            f"`{row['setting']['model']}`, {report['context']} bytes of context:",
            "",
            *study.table(
                header,
                [
                    (
                        w,
                        f"{1000 * s:.2f}",
                        f"{s / one:.2f}",
                        f"{int(w) * one / s:.2f}x cheaper",
                        f"{1000 * rest[w]:.2f}",
                    )
                    for w, s in whole.items()
                ],
            ),
            "",
            f"Without caches a byte takes {1000 * uncached:.2f} ms: the caches make it "
            f"{uncached / one:.0f} times faster (published: 19).",
        ]
    return "\n".join([*lines, ""])
