"""`bytelax generate`: generates continuations of prompts."""

import base64
import sys
from pathlib import Path

import jax

from bytelax.commands.generate import Generate
from bytelax.commands.json_line import check_json, json_line
from bytelax.commands.running import decoding
from bytelax.commands.running.loading import load
from bytelax.generation import generate, stream
from bytelax.pods import distributed
from bytelax.results import Output, Result


def run(flags: Generate) -> None:
    """Runs the command."""
    prompts = _prompts(flags)
    if flags.stream and (flags.json or flags.logprobs or len(prompts) > 1):
        raise ValueError("--stream takes one prompt, and neither --json nor --logprobs")
    check_json(flags, "logprobs")
    distributed.start(flags.processes)
    keywords = {
        # Overrides apply to the large model only, not to a draft model.
        **decoding.keywords(flags.decoding, flags.loading.dtype),
        "max_new_bytes": flags.max_new_bytes,
        "stop": [stop.encode("utf-8", _ESCAPE) for stop in flags.stop],
        "allow_eos": flags.allow_eos,
    }
    spread = flags.mesh.size > 1 or jax.process_count() > 1
    model = load(flags.model, flags.loading, mesh=flags.mesh if spread else None)
    if flags.stream:
        for piece in stream(model, prompts[0], seed=flags.seed, errors=_ESCAPE, **keywords):
            if not distributed.is_first():
                continue
            sys.stdout.buffer.write(piece.encode("utf-8", _ESCAPE))
            sys.stdout.buffer.flush()
        if distributed.is_first():
            sys.stdout.buffer.write(b"\n")
        return
    output = generate(model, prompts, seeds=flags.seed, logprobs=flags.logprobs, **keywords)
    if not distributed.is_first():
        return
    if flags.json:
        print(json_line(to_json(output)))
    else:
        for result in output.results:
            sys.stdout.buffer.write(result.bytes + b"\n")


def _prompts(flags) -> list[bytes]:
    # Arguments that are not UTF-8 arrive with their bytes escaped.
    prompts = [prompt.encode("utf-8", _ESCAPE) for prompt in flags.prompts]
    files = flags.file
    if not prompts and not files:
        files = (Path("-"),)
    for path in files:
        stdin = str(path) == "-"
        prompts.append(sys.stdin.buffer.read() if stdin else path.read_bytes())
    return prompts


_ESCAPE = "surrogateescape"  # preserves bytes that are not UTF-8


def to_json(output: Output) -> dict:
    """Converts the output to the JSON object that `--json` prints."""
    return {
        "results": [_result(result) for result in output.results],
        "stats": output.stats.to_dict(),
        "lossless": output.lossless,
    }


def _result(result: Result) -> dict:
    fields = {
        "text": result.text,
        "base64": base64.b64encode(result.bytes).decode("ascii"),
        "stop": result.stop,
        "stats": result.stats.to_dict(),
    }
    if result.log_probs is not None:
        fields["log_probs"] = result.log_probs.tolist()
    return fields
