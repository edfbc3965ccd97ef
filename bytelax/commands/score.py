"""`bytelax score`: how likely a model thinks texts are."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax import progress
from bytelax.commands import console, flags


@dataclasses.dataclass(frozen=True)
class Score:
    """Flags of `bytelax score`."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files, each a text of its own; `-` is standard input, the default."""
    model: flags.Model = "tiny"
    loading: Annotated[flags.QuantizedLoading, tyro.conf.arg(name="")] = flags.QuantizedLoading()
    windows: Annotated[flags.Windows, tyro.conf.arg(name="")] = flags.Windows()
    logprobs: bool = False
    """Add the log-probability of each byte to the JSON."""
    json: bool = False
    """Print a line of JSON for each file, and one for all of them."""


def run(command: Score) -> None:
    """Scores the files."""
    from bytelax.scoring import figures, score_many

    console.check_json(command, "logprobs")
    files = console.text_files(command.files)
    model = command.loading.load(command.model)
    count, log_prob = 0, 0.0
    with progress.shown(True, "score", sum(file.size for file in files)) as advance:
        texts = (file.read() for file in files)
        scores = score_many(model, texts, **vars(command.windows), progress=advance)
        for file, found in zip(files, scores, strict=True):
            fields = {"file": file.name, **found.to_dict()}
            if command.logprobs:
                fields["log_probs"] = found.log_probs.tolist()
            _print(command, file.name, fields)
            count, log_prob = count + found.bytes, log_prob + found.log_prob
    if command.json or len(files) > 1:
        fields = {"files": len(files), **figures(count, log_prob)}
        _print(command, f"all {len(files)} files", fields)


def _print(command, name, fields):
    bits, count = fields["bits_per_byte"], fields["bytes"]
    line = f"{bits:.4f} bits per byte, {count:,} bytes: {name}"
    print(console.json_line(fields) if command.json else line, flush=True)
