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
    texts = console.read_texts(command.files)
    model = command.loading.load(command.model)
    count, log_prob = 0, 0.0
    with progress.shown(True, "score", sum(map(len, texts.values()))) as advance:
        scores = score_many(model, texts.values(), **vars(command.windows), progress=advance)
        for file, found in zip(texts, scores, strict=True):
            fields = {"file": file, **found.to_dict()}
            if command.logprobs:
                fields["log_probs"] = found.log_probs.tolist()
            _print(command, file, fields)
            count, log_prob = count + found.bytes, log_prob + found.log_prob
    if command.json or len(texts) > 1:
        fields = {"files": len(texts), **figures(count, log_prob)}
        _print(command, f"all {len(texts)} files", fields)


def _print(command, name, fields):
    bits, count = fields["bits_per_byte"], fields["bytes"]
    told = f"{bits:.4f} bits per byte, {count:,} bytes: {name}"
    print(console.json_line(fields) if command.json else told, flush=True)
