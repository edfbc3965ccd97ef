"""What a window of bytes costs beside one byte on a CPU, by the library that multiplies.

    python -m experiments.speed.windows.run

Whole rounds of a random BLT that reads a patch every 4 bytes: the empty draft in windows of W, so
that a round is one byte. All programs of a shape run in turns in one process. "ynn" is XLA's
default, which sends products to YNNPACK, "eigen" the option `xla_cpu_experimental_ynn_fusion_type`
set to nothing; int8 is `quantize="int8"`. Beside them single products, with the matrix laid out
either way. Processor time is told, which a busy machine changes less than the time that passes.
"""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

from bytelax.decode import Decoding, Empty, Method, Params, Sampling, Text, stopping
from bytelax.loading import quantized
from bytelax.models.patching import PatchingConfig
from experiments.harness import random_blt, study
from experiments.speed.windows import products

RESULTS = (study.MAIN, "products")
BUFFER, PROMPT, ROUNDS = 1024, 64, 8
SHAPES = {
    "smallest": {"encoder": (32, 1, 2), "decoder": (32, 1, 2), "global_": (64, 1, 2)},
    "8M": {"encoder": (128, 1, 2), "decoder": (128, 3, 2), "global_": (256, 6, 4)},
    "35M": {"encoder": (256, 1, 4), "decoder": (256, 4, 4), "global_": (512, 8, 4)},
    "100M": {"encoder": (256, 1, 4), "decoder": (256, 9, 4), "global_": (512, 25, 4)},
}
LIBRARIES = {"ynn": {}, "eigen": {"xla_cpu_experimental_ynn_fusion_type": ""}}


def model_of(shape, weights):
    config = random_blt.config(**SHAPES[shape], patcher=(24, 1, 3))
    patching = PatchingConfig(mode="stride", stride=4)
    model = random_blt.model(dataclasses.replace(config, patching=patching, patcher=None), 0)
    return quantized(model) if weights == "int8" else model


def compiled(model, width, library):
    """A program of a few rounds, its parameters, and what begins it: a text in the middle."""
    method, params = Method(model.target(), Empty(width - 1)), Params(model.params)

    def init(params, text):
        return method.init(params, text, budget=BUFFER - PROMPT, sampling=Sampling.of(1))

    def rounds(params, decoding):
        return method.decode(
            params, decoding, until=lambda now: (now.counts.rounds >= ROUNDS).any()
        )

    ids = jax.ShapeDtypeStruct((1, BUFFER), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.int32)
    abstract = jax.eval_shape(init, params, Text(*ids))
    lowered = jax.jit(rounds, donate_argnums=1).lower(params, abstract)
    return lowered.compile(LIBRARIES[library]), params, abstract


def begun(abstract) -> Decoding:
    """Caches of zeros, which cost what others do."""
    one = jnp.ones(1, jnp.int32)
    return dataclasses.replace(
        jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract),
        text=Text(jnp.full((1, BUFFER), 70, jnp.int32), PROMPT * one),
        prompt=PROMPT * one,
        limit=BUFFER * one,
        ended=stopping.RUNNING * one,
    )


def measure(setting, repeats):
    """Milliseconds of processor time a round, and ratios to one byte and to the first library."""
    ways = [(weights, library) for weights in setting["weights"] for library in LIBRARIES]
    models = {weights: model_of(setting["shape"], weights) for weights in setting["weights"]}
    programs = {
        (weights, library, width): compiled(models[weights], width, library)
        for weights, library in ways
        for width in setting["windows"]
    }
    spent = {name: [] for name in programs}
    for repeat in range(repeats + 1):  # the first is not counted
        for name, (program, params, abstract) in programs.items():
            decoding = jax.block_until_ready(begun(abstract))
            begin = time.process_time()
            jax.block_until_ready(program(params, decoding))
            if repeat:
                spent[name].append(1e3 * (time.process_time() - begin) / ROUNDS)
    spent = {name: np.array(times) for name, times in spent.items()}
    rows = []
    for (weights, library, width), times in spent.items():
        beside = times / spent[setting["weights"][0], "ynn", width]
        one = times / spent[weights, library, setting["windows"][0]]
        rows.append(
            {
                "weights": weights, "library": library, "window": width,
                "cpu_ms": np.median(times), "of_one_byte": np.median(one),
                "of_default": np.median(beside), "range": list(np.quantile(beside, (0.1, 0.9))),
            }
        )  # fmt: skip
    return {"programs": rows}


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["8M", "35M", "100M"])
    options.add_argument("--windows", nargs="+", type=int, default=[1, 5, 9, 17])
    options.add_argument("--weights", nargs="+", default=["float32", "int8"])
    options.add_argument("--repeats", type=int, default=8)
    options = options.parse_args()
    shapes = ["smallest"] if options.smoke else options.shapes
    windows = [1, 5] if options.smoke else options.windows
    study.run(
        options.results / f"{study.MAIN}.json",
        {"rounds": ROUNDS, "buffer": BUFFER, "repeats": options.repeats},
        [{"shape": x, "windows": windows, "weights": options.weights} for x in shapes],
        lambda setting: measure(setting, options.repeats),
        markdown=markdown,
    )
    # Of the global transformer: `gate_up` of the 100M shape, and of the 1B.
    matrices = [(64, 128)] if options.smoke else [(512, 2816), (2048, 11264)]
    study.run(
        options.results / "products.json",
        {"repeats": options.repeats},
        [{"matrix": matrix, "rows": [1, 2, 3, *windows[1:]]} for matrix in matrices],
        lambda setting: products.measure(setting, LIBRARIES, options.repeats),
        markdown=products.markdown,
    )


def markdown(report):
    header = (
        "weights",
        "library",
        "window",
        "CPU ms/round",
        "in single bytes",
        "beside ynn",
        "range",
    )
    lines = [
        "# Windows on a CPU",
        "",
        f"Random BLTs, stride 4, one row, {report['rounds']} rounds a call, "
        f"{report['repeats']} calls of each program in turns; medians, the range is that of the "
        "middle 80 % of ratios to float32 with ynn at the same window. "
        f"{study.machine(report).removeprefix('float32, ')}.",
    ]
    for row in report["rows"]:
        cells = [
            (
                x["weights"], x["library"], x["window"], f"{x['cpu_ms']:.2f}",
                f"{x['of_one_byte']:.2f}", f"{x['of_default']:.2f}",
                " to ".join(f"{end:.2f}" for end in x["range"]),
            )
            for x in row["programs"]
        ]  # fmt: skip
        lines += ["", f"## {row['setting']['shape']}", "", *study.table(header, cells)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
