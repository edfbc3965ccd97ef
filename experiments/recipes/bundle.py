"""Puts a trained model into the package: bfloat16 safetensors, the entropy model in float32.

    python -m experiments.recipes.bundle NAME RUN [--heads RUN ...] [--int8]

The model of RUN becomes the bundled model NAME, with the heads of other runs that were trained for
it; its card, the README.md beside it, is written by hand. `--int8` rounds the matrices of the
layers to int8, each output with a scale.
"""

import argparse
import dataclasses
import pathlib
import shutil
import tempfile

import jax
import jax.numpy as jnp

from bytelax import checkpoints
from bytelax.loading import model_directory
from bytelax.options import HeadsConfig
from experiments import study

ASSETS = study.ROOT / "bytelax" / "assets"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the bundled model")
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--heads", type=pathlib.Path, nargs="*", default=[], help="runs of heads")
    parser.add_argument("--int8", action="store_true", help="round the matrices of the layers")
    options = parser.parse_args()
    config, params = checkpoints.read(model_directory(options.run), dtype="float32")
    for run in options.heads:
        of_run, heads = checkpoints.read_heads(run / "heads", config)
        params["heads"] = params.get("heads", {}) | heads
        trained = {k: v for k, v in vars(of_run.heads).items() if v != getattr(HeadsConfig(), k)}
        known = config.heads or HeadsConfig()
        config = dataclasses.replace(config, heads=dataclasses.replace(known, **trained))

    def stored(path, leaf):
        name, *rest = (part.key for part in path)
        in_layer = leaf.ndim > 1 and any(part.startswith("layers") for part in rest)
        rounded = options.int8 and in_layer and name != "heads"  # to int8, when it is written
        return leaf if name == "patcher" or rounded else leaf.astype(jnp.bfloat16)

    params = jax.tree_util.tree_map_with_path(stored, params)
    with tempfile.TemporaryDirectory() as scratch:
        written = pathlib.Path(scratch, "model")
        checkpoints.write(written, config, params, layout="huggingface", int8=options.int8)
        shutil.copytree(written, ASSETS / options.name, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
