"""`bytelax calibrate`: finds the entropy threshold for a target mean patch length."""

import dataclasses
import json
import os
import pathlib

import tyro

from bytelax.commands import console, flags
from bytelax.models.configs import PatchingConfig


@dataclasses.dataclass(frozen=True)
class Calibrate:
    """Flags of `bytelax calibrate`."""

    text: tyro.conf.Positional[tuple[str, ...]]
    """Files, directories or globs of .txt, .py and .jsonl, plain or gzipped."""
    model: flags.Model = "tiny"
    patch_length: float = 4.5
    """Target mean number of bytes per patch."""
    max_patch_length: int | None = None
    """Longer patches are cut to this many bytes; by default as in the config of the BLT."""
    window: int = 1024
    """Number of bytes in each window that the entropy model reads, as in training."""
    max_bytes: int = 2_000_000
    """Approximate number of bytes to measure on, evenly spread over the text."""
    write: bool = False
    """Write the threshold, and --max-patch-length if given, to the config of the BLT."""
    json: bool = False
    """Print the result as JSON."""


def run(command: Calibrate) -> None:
    """Finds the threshold, and writes it with `--write`."""
    from bytelax import architectures, checkpoints, vocab
    from bytelax.loading import model_directory
    from bytelax.measure.patch_lengths import entropies, text_windows, threshold
    from bytelax.model import Model
    from bytelax.models.execution import EXACT

    directory = pathlib.Path(model_directory(command.model))
    config, params = checkpoints.read(directory)
    own = config.patching
    if own is not None and own.mode != "entropy":
        raise ValueError(f"{command.model} cuts patches by {own.mode}, not by entropy")
    if command.write and own is None:
        raise ValueError(
            "an entropy model alone has no threshold to write: "
            "give it to `bytelax train blt --model.patching.threshold`"
        )
    if command.write and checkpoints.detect(directory) != "orbax":
        raise ValueError(f"{directory} is not in bytelax's own layout: `bytelax convert` it first")
    rule = PatchingConfig() if own is None else own
    if command.max_patch_length is not None:
        rule = dataclasses.replace(rule, max_patch_length=command.max_patch_length)
    windows, lengths = text_windows(command.text, command.window, command.max_bytes)
    module = architectures.module_of(config)
    model = Model(module.clone(execution=EXACT) if own is None else module, params)
    found, mean = threshold(
        entropies(model, windows), lengths, rule=rule, wanted=command.patch_length
    )
    rule = dataclasses.replace(rule, threshold=found)
    if command.write:
        _write(directory / "config.json", rule)
    result = {
        "threshold": found,
        "patch_length": mean,
        "max_patch_length": rule.max_patch_length,
        "bytes": int((windows >= vocab.OFFSET).sum()),
    }
    if command.json:
        print(console.json_line(result))
        return
    print(f"threshold {found!r}: {mean:.3f} bytes per patch over {result['bytes']:,} bytes")


def _write(path, rule):
    fields = json.loads(path.read_text())
    fields["config"]["patching"] |= dataclasses.asdict(rule)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(fields, indent=2) + "\n")
    os.replace(partial, path)
