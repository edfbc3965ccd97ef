"""One product of a window with a matrix, by library and by how the matrix lies in memory."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from experiments.harness import study

# A chain of as many matrices as fill the memory: no cache holds them all until the next call.
FLOATS, MOST = 36_000_000, 32
LAYOUTS = {"[in, out]": 0, "[out, in]": 1}  # the axis that is contracted


def measure(setting, libraries, repeats):
    """Milliseconds of processor time that a product takes, by rows, library and layout."""
    inputs, outputs = setting["matrix"]
    count = min(max(2, FLOATS // (inputs * outputs)), MOST)
    draw = np.random.default_rng(0).standard_normal
    matrices = [draw((inputs, outputs), np.float32) for _ in range(count)]
    laid = {
        layout: [jnp.asarray(x.T if axis else x) for x in matrices]
        for layout, axis in LAYOUTS.items()
    }
    programs = {
        (rows, library, layout): jax.jit(
            _chain(axis), compiler_options=libraries[library]
        ).lower(jnp.ones((rows, inputs)), laid[layout]).compile()
        for rows in setting["rows"]
        for library in libraries
        for layout, axis in LAYOUTS.items()
    }  # fmt: skip
    spent = {name: [] for name in programs}
    for repeat in range(repeats + 1):  # the first is not counted
        for (rows, library, layout), program in programs.items():
            x = jax.block_until_ready(jnp.ones((rows, inputs)))
            begin = time.process_time()
            jax.block_until_ready(program(x, laid[layout]))
            if repeat:
                spent[rows, library, layout].append(1e3 * (time.process_time() - begin) / count)
    return {
        "products": [
            {"rows": rows, "library": library, "layout": layout, "cpu_ms": np.median(times)}
            for (rows, library, layout), times in spent.items()
        ]
    }


def _chain(axis):
    def run(x, matrices):
        for matrix in matrices:
            product = jax.lax.dot_general(x, matrix, (((1,), (axis,)), ((), ())))
            x = x + 1e-9 * product[:, : x.shape[1]]
        return x

    return run


def markdown(report):
    lines = [
        "# Products of a window",
        "",
        "Milliseconds of processor time of one product of W rows with a matrix that no cache "
        f"holds, float32, medians of {report['repeats']} calls in turns. "
        f"{study.machine(report).removeprefix('float32, ')}.",
    ]
    for row in report["rows"]:
        products, windows = row["products"], row["setting"]["rows"]
        kinds = list(dict.fromkeys((each["library"], each["layout"]) for each in products))
        cells = [
            (
                library,
                layout,
                *(
                    f"{each['cpu_ms']:.2f}"
                    for each in products
                    if (each["library"], each["layout"]) == (library, layout)
                ),
            )
            for library, layout in kinds
        ]
        inputs, outputs = row["setting"]["matrix"]
        header = ("library", "layout", *(f"W = {rows}" for rows in windows))
        lines += ["", f"## {inputs} x {outputs}", "", *study.table(header, cells)]
    return "\n".join([*lines, ""])
