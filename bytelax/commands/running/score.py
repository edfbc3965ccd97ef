"""`bytelax score`: how likely a model thinks texts are."""

from bytelax.commands.json_line import check_json, json_line
from bytelax.commands.progress_bar import progress_bar
from bytelax.commands.running.loading import load
from bytelax.commands.score import Score
from bytelax.commands.text_files import text_files
from bytelax.scoring import figures, score_many


def run(flags: Score) -> None:
    check_json(flags, "logprobs")
    files = text_files(flags.files)
    model = load(flags.model, flags.loading)
    count, log_prob = 0, 0.0
    with progress_bar("score", sum(file.size for file in files)) as advance:
        texts = (file.read() for file in files)
        scores = score_many(model, texts, **vars(flags.windows), progress=advance)
        for file, found in zip(files, scores, strict=True):
            fields = {"file": file.name, **found.to_dict()}
            if flags.logprobs:
                fields["log_probs"] = found.log_probs.tolist()
            _print(flags, file.name, fields)
            count, log_prob = count + found.bytes, log_prob + found.log_prob
    if flags.json or len(files) > 1:
        fields = {"files": len(files), **figures(count, log_prob)}
        _print(flags, f"all {len(files)} files", fields)


def _print(flags, name, fields):
    bits, count = fields["bits_per_byte"], fields["bytes"]
    told = f"{bits:.4f} bits per byte, {count:,} bytes: {name}"
    print(json_line(fields) if flags.json else told, flush=True)
