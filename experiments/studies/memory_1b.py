"""Memory and time at the shape of the released 1B on a processor, by kind of weights.

A checkpoint of random weights (the hash table in float32, the rest in bfloat16) is written to a new
directory and deleted afterwards. Each kind of weights is loaded by a process of its own. "Compiled"
runs compile their programs, which takes memory of its own; "cached" ones find them. int8: kernels
and hash table; the entropy model is float32 throughout. transformers decodes without a cache.

    pip install -e .[parity]
    python -m experiments.studies.memory_1b --checkpoint NEW_DIRECTORY
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import psutil

from bytelax import architectures
from bytelax.checkpoints import huggingface, layout, safetensors_file
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.blt import BLTConfig
from bytelax.models.blt.encoder import HashConfig
from experiments import study
from experiments.harness.one_b import one_b
from experiments.study import Column

KINDS = ("int8", "bfloat16", "float32")
PEER = "transformers"
PATCHING = {"max_patch_length": 4, "patching_threshold": 100.0}
PLACES = (128, 512)  # bytes of text before those that are timed
TURN, TURNS = 16, 3  # bytes decoded in a call, and calls that are timed
PEER_TURN = 4
COLUMNS = [
    Column("weights", "kind"),
    Column("programs", "programs"),
    Column("weights, GB", "weights_gb", ".2f"),
    Column("peak memory, GB", "peak_gb", ".1f"),
    Column("load, s", "load_seconds", ".0f"),
    Column("compiling, s", "compile_seconds", ".0f"),
    *(Column(f"ms per byte after {place} bytes", f"ms_{place}", ".0f") for place in PLACES),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--checkpoint", type=pathlib.Path, required=True, help="a new directory")
    options.add_argument("--without-transformers", action="store_true")
    options.add_argument("--limit", type=float, default=21.0, help="GB that a process may take")
    options = options.parse_args()
    config = one_b(1 if options.smoke else None)
    if options.smoke:
        config = type(config)(**(vars(config) | {"hashing": HashConfig(vocab=101)}))
    kinds = KINDS[:1] if options.smoke else KINDS
    settings = [{"kind": kind, "programs": of} for kind in kinds for of in ("compiled", "cached")]
    if not options.without_transformers and not options.smoke:
        settings += [{"kind": kind, "programs": PEER} for kind in kinds if kind != "int8"]
    write(options.checkpoint, config)
    try:
        study.run(
            "memory_1b", options, settings,
            lambda setting: measure(options.checkpoint, setting, options.limit),
            conditions={"bytes timed": TURN * TURNS},
        )  # fmt: skip
    finally:
        shutil.rmtree(options.checkpoint)
        shutil.rmtree(f"{options.checkpoint}.programs", ignore_errors=True)


def measure(checkpoint: pathlib.Path, setting: dict, limit: float) -> dict:
    """The row of a process, which is killed if it takes more than `limit` GB."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--child"]
    command += [str(checkpoint), setting["kind"], setting["programs"]]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu", "BYTELAX_CACHE": f"{checkpoint}.programs"
    }  # fmt: skip
    if setting["programs"] == PEER:
        limit = math.inf
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
        lines = process.stdout.read().splitlines()
    if process.returncode:
        raise SystemExit(f"{setting} ended with {process.returncode} at {peak:.1f} GB")
    return {"peak_gb": peak, **json.loads(lines[-1])}


def child(directory: str, kind: str, programs: str) -> None:
    """Loads a checkpoint and generates; prints what it took."""
    figures = transformers(directory, kind) if programs == PEER else ours(directory, kind)
    print(json.dumps(figures))


def ours(directory: str, kind: str) -> dict:
    import jax

    import bytelax
    from bytelax import compiling, vocab
    from bytelax.running.engine import Engine
    from bytelax.running.requests import Request

    compiling.keep_programs()
    begin = time.perf_counter()
    how = {"quantize": "int8", "dtype": "bfloat16"} if kind == "int8" else {"dtype": kind}
    model = bytelax.load(directory, **PATCHING, **how)
    figures = {"load_seconds": time.perf_counter() - begin}
    figures["weights_gb"] = sum(x.nbytes for x in jax.tree.leaves(model.params)) / 1e9
    engine = Engine.of(model, max_new_bytes=(TURNS + 1) * TURN, allow_eos=False)
    capacity = engine.capacity(Request(0, [0] * max(PLACES), 0))
    with compiling.watch() as compiled:
        for place in PLACES:
            text = vocab.encode(b"A byte latent transformer reads bytes. " * place)
            request = Request(0, text[: place - TURN], 0)
            decoding = engine.start([request], capacity=capacity)
            times = []
            for _ in range(TURNS + 1):  # the first is not counted
                begin = time.perf_counter()
                decoding = jax.block_until_ready(engine.advance(decoding, rounds=TURN))
                times.append(time.perf_counter() - begin)
            figures[f"ms_{place}"] = 1e3 * float(np.median(times[1:])) / TURN
    return figures | {"compile_seconds": compiled.seconds}


def transformers(directory: str, kind: str) -> dict:
    import torch
    import transformers

    from experiments.harness import peers

    torch.set_num_threads(len(psutil.Process().cpu_affinity()))
    begin = time.perf_counter()
    config = transformers.AutoConfig.from_pretrained(directory, **PATCHING)
    model = transformers.BltForCausalLM.from_pretrained(
        directory, config=config, dtype=getattr(torch, kind)
    ).eval()
    figures = {"load_seconds": time.perf_counter() - begin}
    figures["weights_gb"] = sum(x.nbytes for x in model.parameters()) / 1e9
    for place in PLACES:
        text = (b"A byte latent transformer reads bytes. " * place)[:place]
        times = [
            peers.generate(model, text, PEER_TURN, use_cache=False)[1] / PEER_TURN
            for _ in range(TURNS + 1)  # the first is not counted
        ]
        figures[f"ms_{place}"] = 1e3 * float(np.median(times[1:]))
    return figures


def write(directory: pathlib.Path, config: BLTConfig) -> None:
    """Writes random weights in the layout of transformers, a block at a time."""
    drawn = 1 << 22  # numbers, which are used again and again
    numbers = np.random.default_rng(0).standard_normal(2 * drawn, np.float32)

    def tensor(path, part):
        kind = np.float32 if path == layout.HASH_TABLE else ml_dtypes.bfloat16
        deviation = 0.02 if len(part.shape) < 2 else part.shape[1] ** -0.5
        width = math.prod(part.shape[1:])

        def rows(start, stop):
            if path.endswith("/scale"):
                return np.ones((stop - start, *part.shape[1:]), kind)
            flat = np.resize(numbers[start % drawn :], (stop - start) * width) * deviation
            return flat.astype(kind).reshape(stop - start, *part.shape[1:])

        return Tensor(part.shape, np.dtype(kind), rows)

    tensors = {
        part.name: tensor(path, part)
        for path, parameter in architectures.parameters(config).items()
        for part in parameter.slices
    }
    directory.mkdir(parents=True)
    fields = huggingface.to_config_json(config)
    (directory / "config.json").write_text(json.dumps(fields))
    safetensors_file.write_file(directory / safetensors_file.SINGLE, tensors)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
