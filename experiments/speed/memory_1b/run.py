"""Memory by stage at the shape of the released 1B: reading, compiling and decoding on a CPU.

    pip install -e .[parity]
    python -m experiments.speed.memory_1b.run --checkpoint DIR

Every kind of weights runs twice: compiling its programs, which takes memory of its own that is not
given back, and with the compiled programs of the first time. Those that transformers has run there
as well.

A checkpoint of random weights (15.4 GB, the hash table in float32) is written to DIR and deleted
afterwards. Each kind of weights is loaded by a process of its own, which is killed if it takes more
than `--limit` GB. `--layers` cuts every stack, for small disks and machines.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

import psutil

from bytelax.models.blt.encoder import HashConfig
from experiments.harness import study
from experiments.harness.one_b import one_b
from experiments.speed.memory_1b import checkpoint, child

KINDS = ("int8", "bfloat16", "float32")
PROGRAMS = ("compiled", "cached")
PEER = "transformers"  # has no programs, and no int8 of ours


def settings(kinds, peer):
    """Kinds of weights and programs; with `peer`, those that transformers has at the end."""
    ours = [{"weights": kind, "programs": which} for kind in kinds for which in PROGRAMS]
    return ours + peer * [{"weights": kind, "programs": PEER} for kind in kinds if kind != "int8"]


def measure(directory, setting, limit):
    """Rows that a process printed before it ended, or before it was killed."""
    module = "transformers_child" if setting["programs"] == PEER else "child"
    module = f"{__package__}.{module}"
    command = [sys.executable, "-m", module, directory, setting["weights"]]
    cache = {"BYTELAX_CACHE": f"{directory}.programs"}
    environment = os.environ | {"JAX_PLATFORMS": "cpu"} | cache
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        watched, peak = psutil.Process(process.pid), 0.0
        while process.poll() is None:
            try:
                peak = max(peak, watched.memory_info().rss / 1e9)
            except psutil.Error:
                break
            if peak > limit or psutil.virtual_memory().available < 0.7e9:
                process.kill()
            time.sleep(0.02)
        assert process.stdout is not None
        lines = [json.loads(line) for line in process.stdout.read().splitlines()]
    stages = {line.pop("stage"): line for line in lines if "stage" in line}
    figures = next((line for line in lines if "weights_gb" in line), {})
    return {"stages": stages, "peak_gb": peak, "ended": process.returncode == 0, **figures}


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--checkpoint", type=pathlib.Path, required=True, help="a new directory")
    options.add_argument("--layers", type=int, help="of each stack at most")
    options.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options.add_argument(
        "--without-transformers", action="store_true", help="where it is not installed"
    )
    options.add_argument(
        "--limit", type=float, default=21.0, help="GB that a process of ours may take"
    )
    options = options.parse_args()
    config = one_b(options.layers)
    if options.smoke:
        config = one_b(1)
        config = type(config)(**(vars(config) | {"hashing": HashConfig(vocab=101)}))
    directory = str(options.checkpoint)
    if not options.checkpoint.exists():
        checkpoint.write(options.checkpoint, config)
    size = sum(file.stat().st_size for file in options.checkpoint.iterdir())
    try:
        study.run(
            options.results / f"{study.MAIN}.json",
            {
                "places": child.PLACES,
                "bytes": child.TURN * child.TURNS,
                "layers": options.layers,
                "checkpoint_gb": size / 1e9,
            },
            settings(options.kinds, not options.without_transformers),
            lambda setting: measure(
                directory, setting, math.inf if setting["programs"] == PEER else options.limit
            ),
            markdown=markdown,
        )
    finally:
        shutil.rmtree(options.checkpoint)
        shutil.rmtree(f"{options.checkpoint}.programs", ignore_errors=True)


def markdown(report):
    rows, whole, places = [], [], report["places"]
    for row in report["rows"]:
        which = row["setting"]["weights"], row["setting"]["programs"]
        for name, stage in row["stages"].items():
            cells = (stage["seconds"], stage["peak_gb"], stage["resident_gb"])
            rows.append((*which, name, *(f"{x:.1f}" for x in cells)))
        times = [
            f"{row[figure][str(place)]:.0f}" if figure in row else None
            for figure in ("ms_per_byte", "cpu_ms_per_byte")
            for place in places
        ]
        weights = f"{row['weights_gb']:.2f}" if row["ended"] else "ended early"
        compiling = f"{row['compile_seconds']:.0f}" if "compile_seconds" in row else None
        load = f"{row['stages']['load']['seconds']:.0f}" if "load" in row["stages"] else None
        whole.append((*which, weights, f"{row['peak_gb']:.1f}", load, compiling, *times))
    cut = "" if report["layers"] is None else f", at most {report['layers']} layers a stack"
    header = (
        "weights", "programs", "weights, GB", "peak, GB", "load, s", "compiling, s",
        *(f"{kind} at {place}" for kind in ("ms/byte", "CPU ms/byte") for place in places),
    )  # fmt: skip
    return "\n".join(
        [
            "# Memory at the 1B shape",
            "",
            f"A checkpoint of random weights of {report['checkpoint_gb']:.1f} GB{cut}: the hash "
            "table in float32, the rest in bfloat16. int8: kernels and hash table int8, the rest "
            "bfloat16; the entropy model is float32 in every row. Patches of 4 bytes, one row; "
            f"{report['bytes']} bytes timed behind {' and '.join(map(str, places))}. CPU ms: "
            "processor time, which a busy machine changes less. transformers decodes without a "
            "cache, and three times four bytes; what it maps from the file counts as its memory. "
            f"{study.machine(report).removeprefix('float32, ')}.",
            "",
            *study.table(header, whole),
            "",
            *study.table(
                ("weights", "programs", "stage", "seconds", "peak, GB", "resident, GB"), rows
            ),
            "",
        ]
    )


if __name__ == "__main__":
    main()
