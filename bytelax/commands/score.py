"""`bytelax score`: how likely a model thinks texts are."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.json_line import json_line
from bytelax.commands.load_flags import LoadFlags
from bytelax.commands.progress_bar import progress_bar
from bytelax.commands.text_files import text_files
from bytelax.scoring import figures, score_many


@dataclasses.dataclass(frozen=True)
class Score:
    """Score files: bits per byte under a model, of each and of all."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files, each a text of its own; `-` is standard input, the default."""
    model: str = "tiny"
    """A bundled model, a directory (Orbax, Hugging Face or Meta layout), or a hub id."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    window: int | None = None
    """Most bytes that the model sees at once; by default 1023, or its context if shorter."""
    stride: int | None = None
    """Bytes by which windows move along a longer text; by default half of the window."""
    batch: int = 8
    """Windows that are scored together."""
    logprobs: bool = False
    """Add the log-probability of each byte to the JSON."""
    json: bool = False
    """Print a line of JSON for each file, and one for all of them."""

    def run(self) -> None:
        if self.logprobs and not self.json:
            raise ValueError("--logprobs is printed as JSON only: add --json")
        files = text_files(self.files)
        model = self.loading.load(self.model)
        count, log_prob = 0, 0.0
        with progress_bar("score", sum(file.size for file in files)) as advance:
            scores = score_many(
                model, (file.read() for file in files), window=self.window, stride=self.stride,
                batch=self.batch, progress=advance,
            )  # fmt: skip
            for file, found in zip(files, scores, strict=True):
                fields = {"file": file.name, **found.to_dict()}
                if self.logprobs:
                    fields["log_probs"] = found.log_probs.tolist()
                self._print(file.name, fields)
                count, log_prob = count + found.bytes, log_prob + found.log_prob
        if self.json or len(files) > 1:
            fields = {"files": len(files), **figures(count, log_prob)}
            self._print(f"all {len(files)} files", fields)

    def _print(self, name, fields):
        bits, count = fields["bits_per_byte"], fields["bytes"]
        told = f"{bits:.4f} bits per byte, {count:,} bytes: {name}"
        print(json_line(fields) if self.json else told, flush=True)
