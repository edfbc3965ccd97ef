"""`bytelax patches`: where an entropy model cuts texts."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro

from bytelax import progress
from bytelax.commands import console, flags


@dataclasses.dataclass(frozen=True)
class Patches:
    """Flags of `bytelax patches`."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files, each a text of its own; `-` is standard input, the default."""
    model: flags.Model = "tiny"
    overrides: Annotated[flags.Overrides, tyro.conf.arg(name="")] = flags.Overrides()
    windows: Annotated[flags.Windows, tyro.conf.arg(name="")] = flags.Windows()
    entropies: bool = False
    """Add the entropy at each byte, in nats, to the JSON."""
    json: bool = False
    """Print a line of JSON for each file, with the length of each patch."""


def run(command: Patches) -> None:
    """Cuts the files."""
    from bytelax import checkpoints
    from bytelax.loading import load_patcher, model_directory
    from bytelax.scoring.patcher import patches

    console.check_json(command, "entropies")
    files = console.text_files(command.files)
    changes = command.overrides.fields
    patcher = load_patcher(command.model, **changes)
    config = checkpoints.read_config(model_directory(command.model))
    if config.patching is None and "patching_threshold" not in changes:
        print(
            f"{command.model} is a byte transformer and has no threshold: taking that of the "
            f"released models, {patcher.rule.threshold:.4g} nats; "
            "--override patching_threshold=... sets another",
            file=sys.stderr,
        )
    with progress.shown(True, "patches", sum(file.size for file in files)) as advance:
        texts = (file.read() for file in files)
        found = patches(patcher, texts, **vars(command.windows), progress=advance)
        for file, cut in zip(files, found, strict=True):
            _print(command, file.name, cut)


def _print(command, name, cut):
    count, lengths = len(cut.entropies), cut.lengths
    mean = count / len(lengths)
    if not command.json:
        line = f"{mean:.3f} bytes per patch, {len(lengths):,} patches, {count:,} bytes: {name}"
        print(line, flush=True)
        return
    fields = {"file": name, "bytes": count, "bytes_per_patch": mean, "lengths": lengths}
    if command.entropies:
        fields["entropies"] = cut.entropies.tolist()
    print(console.json_line(fields), flush=True)
