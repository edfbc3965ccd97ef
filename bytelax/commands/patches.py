"""`bytelax patches`: where an entropy model cuts texts."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.json_line import json_line
from bytelax.commands.load_flags import Overrides
from bytelax.commands.progress_bar import progress_bar
from bytelax.commands.text_files import text_files
from bytelax.loading import load_patcher
from bytelax.patcher import patches


@dataclasses.dataclass(frozen=True)
class Patches:
    """Cut files into patches by an entropy model, the only part of a BLT that is loaded."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files, each a text of its own; `-` is standard input, the default."""
    model: str = "tiny"
    """A BLT as `bytelax generate` takes it, or an entropy model: also a directory of `train`."""
    overrides: Annotated[Overrides, tyro.conf.arg(name="")] = Overrides()
    window: int | None = None
    """Most bytes that the model sees at once; by default 1023, or its context if shorter."""
    stride: int | None = None
    """Bytes by which windows move along a longer text; by default half of the window."""
    batch: int = 8
    """Windows that are read together."""
    entropies: bool = False
    """Add the entropy at each byte, in nats, to the JSON."""
    json: bool = False
    """Print a line of JSON for each file, with the length of each patch."""

    def run(self) -> None:
        if self.entropies and not self.json:
            raise ValueError("--entropies is printed as JSON only: add --json")
        files = text_files(self.files)
        patcher = load_patcher(self.model, **self.overrides.to_dict())
        with progress_bar("patches", sum(file.size for file in files)) as advance:
            found = patches(
                patcher, (file.read() for file in files), window=self.window, stride=self.stride,
                batch=self.batch, progress=advance,
            )  # fmt: skip
            for file, cut in zip(files, found, strict=True):
                self._print(file.name, cut)

    def _print(self, name, cut):
        count, lengths = len(cut.entropies), cut.lengths
        mean = count / len(lengths)
        if not self.json:
            told = f"{mean:.3f} bytes a patch, {len(lengths):,} patches, {count:,} bytes: {name}"
            print(told, flush=True)
            return
        fields = {"file": name, "bytes": count, "bytes_per_patch": mean, "lengths": lengths}
        if self.entropies:
            fields["entropies"] = cut.entropies.tolist()
        print(json_line(fields), flush=True)
