"""`bytelax generate`: generates continuations of prompts."""

import base64
import dataclasses
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from bytelax import options
from bytelax.commands import console, flags
from bytelax.pods.configs import MeshConfig, Processes

_ESCAPE = "surrogateescape"  # preserves bytes that are not UTF-8


@dataclasses.dataclass(frozen=True)
class Generate:
    """Flags of `bytelax generate`."""

    prompts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to continue. After a flag that takes several values, put `--` before them."""
    file: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A file to continue; `-` is standard input, which is the default."""
    model: flags.Model = "tiny"
    loading: Annotated[flags.DecodingLoading, tyro.conf.arg(name="")] = flags.DecodingLoading()
    mesh: flags.Mesh = MeshConfig()
    """Mesh of devices: prompts are split over data and fsdp, the model over tensor."""
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()
    max_new_bytes: int = 128
    """Maximum number of bytes to generate for each prompt."""
    method: str = "ar"
    """Decoding method; `bytelax methods` lists them, and `--method NAME --help` shows the options
    of one."""
    decoding: Annotated[
        tyro.conf.OmitArgPrefixes[options.Options], tyro.conf.arg(name="method")
    ] = options.Ar()
    window: int | None = None
    """Pad every verified window to this number of bytes, so that the outputs of methods can be
    compared bit for bit."""
    temperature: float = 0.0
    """Sampling temperature; 0 always takes the most likely byte."""
    top_k: int = 0
    """Sample among this number of most likely bytes only; 0 samples among all."""
    top_p: float = 1.0
    """Sample among the most likely bytes with this total probability only."""
    seed: int = 0
    """Random seed; prompt i is sampled with seed + i."""
    stop: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A string that ends a continuation."""
    allow_eos: bool = True
    """Let the model end a continuation with an EOS."""
    logprobs: bool = False
    """Add the log-probability of each byte to the JSON."""
    turns: bool = False
    """Continue a conversation: after the prompt, each line of standard input, without its end, is
    appended to all that was written before, and continued."""
    stream: bool = False
    """Print the continuation of a single prompt while it is generated."""
    json: bool = False
    """Print results and statistics as JSON."""


def default(args: Sequence[str]) -> Generate:
    """Returns the defaults, with the options of the method that `--method` names."""
    args = args[: args.index("--")] if "--" in args else args  # what follows are prompts
    name = flags.value_of("--method", args) or "ar"
    method = options.find(name)
    needed = [x.name for x in dataclasses.fields(method) if x.default is dataclasses.MISSING]
    return Generate(method=name, decoding=method(**dict.fromkeys(needed, tyro.MISSING)))


def run(command: Generate) -> None:
    """Generates, and prints what was generated."""
    import jax

    from bytelax.loading import load
    from bytelax.pods import distributed
    from bytelax.running import generate, stream, turns

    prompts = _prompts(command)
    if command.turns and (command.stream or command.json or command.logprobs or len(prompts) > 1):
        raise ValueError("--turns takes at most one prompt, and no --stream, --json or --logprobs")
    if command.stream and (command.json or command.logprobs or len(prompts) > 1):
        raise ValueError("--stream takes one prompt, and neither --json nor --logprobs")
    console.check_json(command, "logprobs")
    method = command.decoding
    command.loading.check_drafts(isinstance(method, options.DraftModel))
    distributed.start(command.processes)
    if isinstance(method, options.DraftModel):
        small = load(str(method.draft_model), **command.loading.of_drafts)
        method = dataclasses.replace(method, draft_model=small)
    names = ("max_new_bytes", "window", "temperature", "top_k", "top_p", "allow_eos")
    keywords = {name: vars(command)[name] for name in names} | {
        "method": method,
        "stop": [stop.encode("utf-8", _ESCAPE) for stop in command.stop],
    }
    spread = command.mesh.size > 1 or jax.process_count() > 1
    model = command.loading.load(command.model, mesh=command.mesh if spread else None)
    if command.turns:
        lines = (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
        first = prompts[0] + next(lines, b"") if prompts else None
        texts = lines if first is None else itertools.chain([first], lines)
        for result in turns(model, texts, seeds=command.seed, **keywords):
            if distributed.is_first():
                sys.stdout.buffer.write(result.bytes + b"\n")
                sys.stdout.buffer.flush()
                _warn_if_broken("turn", result)
        return
    if command.stream:
        for piece in stream(model, prompts[0], seeds=command.seed, errors=_ESCAPE, **keywords):
            if not distributed.is_first():
                continue
            sys.stdout.buffer.write(piece.encode("utf-8", _ESCAPE))
            sys.stdout.buffer.flush()
        if distributed.is_first():
            sys.stdout.buffer.write(b"\n")
        return
    keywords |= {"logprobs": command.logprobs, "progress": True}
    out = generate(model, prompts, seeds=command.seed, **keywords)
    if not distributed.is_first():
        return
    if command.json:
        results = [_fields(result) for result in out.results]
        stats = {"stats": out.stats.to_dict(), "lossless": out.lossless}
        print(console.json_line({"results": results} | stats))
    else:
        for result in out.results:
            sys.stdout.buffer.write(result.bytes + b"\n")
    for result in out.results:
        _warn_if_broken("prompt", result)


def _warn_if_broken(what, result):
    """Warns on standard error if a result ended because the model is broken."""
    from bytelax.decode import stopping

    if result.stop == stopping.REASONS[stopping.NOT_FINITE]:
        problem = "the model's logits are NaN or infinite; check its weights"
        print(f"bytelax: {what} {result.index}: {problem}", file=sys.stderr)


def _prompts(command) -> list[bytes]:
    # Arguments that are not UTF-8 arrive with their bytes escaped.
    prompts = [prompt.encode("utf-8", _ESCAPE) for prompt in command.prompts]
    if not prompts and not command.file and not command.turns:
        prompts.append(sys.stdin.buffer.read())
        if not prompts[0]:
            raise ValueError("standard input is empty: name a prompt, '' for the start of a text")
    for path in command.file:
        stdin = str(path) == "-"
        prompts.append(sys.stdin.buffer.read() if stdin else path.read_bytes())
    return prompts


def _fields(result):
    """A result as the JSON object that `--json` prints."""
    fields = {
        "text": result.text,
        "base64": base64.b64encode(result.bytes).decode("ascii"),
        "stop": result.stop,
        "stats": result.stats.to_dict(),
    }
    if result.log_probs is not None:
        fields["log_probs"] = result.log_probs.tolist()
    return fields
