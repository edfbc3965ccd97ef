"""Puts a trained model into the package: bfloat16 safetensors, the entropy model in float32.

    python -m experiments.recipes.bundle NAME RUN [--heads RUN ...]

RUN/model becomes the bundled model NAME, with the heads of other runs that were trained for it; its
card, the README.md beside it, is written by hand.
"""

import argparse
import dataclasses
import pathlib
import shutil
import tempfile

import jax
import jax.numpy as jnp

from bytelax import checkpoints
from bytelax.options import HeadsConfig
from experiments import study

ASSETS = study.ROOT / "bytelax" / "assets"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the bundled model")
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--heads", type=pathlib.Path, nargs="*", default=[], help="runs of heads")
    options = parser.parse_args()
    config, params = checkpoints.read(options.run / "model", dtype="float32")
    for run in options.heads:
        of_run, heads = checkpoints.read_heads(run / "heads", config)
        params["heads"] = params.get("heads", {}) | heads
        trained = {k: v for k, v in vars(of_run.heads).items() if v != getattr(HeadsConfig(), k)}
        known = config.heads or HeadsConfig()
        config = dataclasses.replace(config, heads=dataclasses.replace(known, **trained))

    def stored(path, leaf):
        return leaf if path[0].key == "patcher" else leaf.astype(jnp.bfloat16)

    params = jax.tree_util.tree_map_with_path(stored, params)
    with tempfile.TemporaryDirectory() as scratch:
        written = pathlib.Path(scratch, "model")
        checkpoints.write(written, config, params, layout="huggingface")
        shutil.copytree(written, ASSETS / options.name, dirs_exist_ok=True)


if __name__ == "__main__":
    main()
