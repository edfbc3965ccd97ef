"""What the recipes of trained models share: flags of `bytelax train`, and the call of it."""

import argparse
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bytelax.checkpoints import config as plain_config
from bytelax.training.configs import Source

THRESHOLD = 2.4749  # nats: 4.5 bytes per patch on the validation text, from `bytelax calibrate`


class Stack(NamedTuple):
    """A stack of transformer layers."""

    dim: int
    layers: int
    ffn_dim: int
    heads: int = 2
    window: int | None = None

    def flags(self, name: str) -> list[str]:
        return _flags(
            f"model.{name}", dim=self.dim, layers=self.layers, heads=self.heads,
            kv_heads=self.heads, head_dim=self.dim // self.heads, ffn_dim=self.ffn_dim,
            window=self.window,
        )  # fmt: skip


def blt(
    *, encoder: Stack, global_: Stack, decoder: Stack, hashes: int, threshold: float, patches: int
) -> list[str]:
    """A BLT whose decoder embeds its own bytes, with patches of up to 8 bytes, cut by entropy.

    Args:
      encoder, global_, decoder: its networks.
      hashes: rows of its table of hash embeddings.
      threshold: of the entropy, in nats.
      patches: the most that a window has.
    """
    return [
        *encoder.flags("encoder"), *global_.flags("global-transformer"), *decoder.flags("decoder"),
        *_flags("model", decoder_input="embedding"), *_flags("model.hashing", vocab=hashes),
        *_flags("model.patching", threshold=threshold, max_patch_length=8),
        *most_patches(patches),
    ]  # fmt: skip


def most_patches(count: int) -> list[str]:
    return _flags("objective", max_patches=count)


def data(window: int, batch: int, *, seed: int = 0) -> list[str]:
    return _flags("data", window=window, batch=batch, seed=seed)


def muon(
    steps: int,
    *,
    peak: float = 3e-3,
    muon_peak: float = 0.012,
    weight_decay: float = 0.05,
    cooldown: float = 0.2,
    warmup: int = 100,
) -> list[str]:
    """A constant rate and a cooldown: a run can be made longer while it lasts."""
    falling = int(steps * cooldown)
    return _flags(
        "optimizer", name="muon", steps=steps, peak=peak, muon_peak=muon_peak,
        weight_decay=weight_decay, cooldown=falling, warmup=min(warmup, steps - falling),
    )  # fmt: skip


def blocks(*sizes: int, most_blocks: int) -> list[str]:
    """The masked blocks of a BLT-D: of these sizes, half of them from the middle of a patch."""
    return [
        "--objective.corruption.block-sizes", *map(str, sizes),
        *_flags("objective.corruption", mid_patch=0.5, t_for_each="block", most_blocks=most_blocks),
        *_flags("objective", mask_loss="mean"),
    ]  # fmt: skip


def _flags(group: str, **values) -> list[str]:
    return [
        word
        for name, value in values.items()
        for word in (f"--{group}.{name.replace('_', '-')}", str(value))
    ]


def command(arguments: Sequence[str], sources: Sequence[Source], out: pathlib.Path) -> list[str]:
    """The call of `bytelax train`, in a process of its own."""
    train = [sys.executable, "-m", "bytelax.cli", "train", *arguments]
    return [*train, "--out", str(out), "--data", *map(str, sources)]


def trained_on(run: pathlib.Path) -> dict:
    """What a run of `bytelax train` has seen, from its recorded config."""
    fields = plain_config.read_toml(run / "config.toml")
    steps, data = fields["optimizer"]["steps"], fields["data"]
    return {
        "steps": steps,
        "bytes": steps * data["window"] * data["batch"],
        "loss_of": fields.get("loss_of"),
    }


def main(
    doc: str,
    stages: Sequence[str],
    recipe: Callable[[str, pathlib.Path, int | None], list[str]],
    sources: Callable[[str], Sequence[Source]],
) -> int:
    """The command line of a set of recipes: trains one stage of them.

    Args:
      doc: the description.
      stages: their names.
      recipe: from a stage, the directory of all runs and a number of steps, None for the stage's
        own, to the arguments of `bytelax train`.
      sources: from the directory of the data to what a model learns from.

    Returns:
      the exit status.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("stage", choices=stages)
    parser.add_argument("--data", required=True)
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    arguments = recipe(options.stage, options.runs, options.steps)
    out = options.runs / options.stage
    # An interrupt reaches the trainer, too, and `call` would not wait until its state is saved.
    signal.signal(signal.SIGINT, lambda *_: None)
    often = _flags("run", validation_batches=16, validate_every=200, save_every=200, log_every=20)
    return subprocess.call([*command(arguments, sources(options.data), out), *often])


def train_small(
    arguments: Sequence[str],
    sources: Sequence[Source],
    out: pathlib.Path,
    *,
    window: int,
    batch: int,
    steps: int,
    log_every: int = 100,
    validate: bool = False,
) -> None:
    """Trains a small model of a study by AdamW, unless it is there; validates it at the end."""
    if (out / "model").exists():
        return
    more = [
        *_flags("data", window=window, batch=batch),
        *_flags("optimizer", steps=steps, peak="3e-3", warmup=60),
        *_flags("run", save_every=0, log_every=log_every, validate_every=steps * validate,
                validation_batches=32),
    ]  # fmt: skip
    subprocess.run([*command(arguments, sources, out), *more], check=True)
