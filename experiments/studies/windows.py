"""What a pass over W bytes costs a byte transformer, compared with W passes over one.

"From the exit": verifying from the states of the exit at half the depth. The published shape (85M,
12 layers of width 768) has random weights, and so has one of 800M, in bfloat16. The last column is
one pass over the whole text, without caches.

    python -m experiments.studies.windows
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from bytelax_kernels import timing

from bytelax import load, vocab
from bytelax.decode import Text
from bytelax.model import Model
from bytelax.models import presets
from bytelax.models.byte_lm import ByteLM
from bytelax.targets.byte_lm import ByteLMTarget, FirstLayers
from experiments import study
from experiments.harness.one_b import random_params
from experiments.study import Column

CONTEXT = 512
LOOPS = {"tiny-lm": 20, "85M": 20, "800M": 4}  # passes in one program
WIDTHS = {"tiny-lm": (1, 2, 4, 8, 16, 32), "85M": (1, 2, 4, 8, 16, 32), "800M": (1, 5, 9, 17)}
COLUMNS = [
    Column("model", "model"),
    Column("W", "width"),
    Column("ms", "ms", ".2f"),
    Column("in passes over one", "relative", ".2f"),
    Column("W passes over one, in passes over W", "cheaper", ".2f"),
    Column("from the exit, ms", "exit_ms", ".2f"),
    Column("without caches, ms", "uncached_ms", ".2f"),
]


def main():
    options = study.parser(__doc__).parse_args()
    models = ["tiny-lm"] if options.smoke else list(WIDTHS)
    study.run(
        "windows", options, [{"model": name} for name in models],
        lambda setting: measure(setting["model"]),
        conditions={"context": CONTEXT, "times": "best of five"},
    )  # fmt: skip


def measure(name: str) -> list[dict]:
    """A row for each W."""
    model = SHAPES[name]() if name in SHAPES else load(name, dtype="float32")
    module, params = model.device_module, model.device_params  # as programs that decode take them
    ids = np.full((1, CONTEXT), vocab.OFFSET + 97, np.int32)
    ids[:, 0] = vocab.BOS
    text = Text(jnp.asarray(ids), jnp.asarray([CONTEXT]))
    exit_layer = model.config.trunk.layers // 2
    target = ByteLMTarget(module, capacity=CONTEXT + 64, window=max(WIDTHS[name]))
    state = jax.jit(target.prefill)(params, text)

    def from_the_exit(params, state, window):
        bound = module.bind({"params": params})
        computed = FirstLayers(bound.embed(window), state.caches[:exit_layer], exit_layer)
        return target.extend(params, dataclasses.replace(state, computed=computed), window)

    def whole(ids, params):
        logits = module.apply({"params": params}, ids)[0, -1, 0]
        return ids + (logits > 1e30).astype(ids.dtype)

    uncached = timing.seconds_of_step(whole, text.ids, params, repeats=3)
    rows = []
    for width in WIDTHS[name]:
        taken, exit_ = (
            seconds(target, step, params, state, width, LOOPS[name])
            for step in (target.extend, from_the_exit)
        )
        one = rows[0]["ms"] if rows else 1e3 * taken
        rows.append({
            "width": width, "ms": 1e3 * taken, "relative": 1e3 * taken / one,
            "cheaper": width * one / (1e3 * taken), "exit_ms": 1e3 * exit_,
            "uncached_ms": None if rows else 1e3 * uncached,
        })  # fmt: skip
    return rows


def seconds(target, step, params, state, width: int, loops: int) -> float:
    """Of a pass, many of them inside one program so that calls cost nothing."""

    def once(carry, params):
        state, window = carry
        logits, trial = step(params, state, window)
        # The next pass depends on the result of this one.
        shift = (logits[0, 0, 0] > 1e30).astype(jnp.int32)
        return target.commit(trial, jnp.zeros(1, jnp.int32)), window + shift

    window = jnp.full((1, width), vocab.OFFSET + 97, jnp.int32)
    return timing.seconds_of_step(once, (state, window), params, repeats=loops)


def published_shape() -> Model:
    """Twelve layers of width 768, random weights."""
    module = ByteLM(presets.BYTE_LM_85M)
    init = jax.jit(module.init)
    return Model(module, init(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))["params"])


def large_shape() -> Model:
    """800M parameters, random ones in bfloat16."""
    module = ByteLM(presets.BYTE_LM_800M)
    return Model(module, random_params(module))


SHAPES = {"85M": published_shape, "800M": large_shape}


if __name__ == "__main__":
    main()
