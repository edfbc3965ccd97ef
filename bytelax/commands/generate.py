"""`bytelax generate`: continue prompts."""

import base64
import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bytelax.commands.json_line import json_line
from bytelax.commands.loading import LoadFlags
from bytelax.generation import Output, Result, generate, stream
from bytelax.loading import load

_METHOD_OPTIONS = (
    "synchronous", "draft_layers", "latent", "unmask", "alpha", "gamma", "open_patch", "verify",
    "window", "exit_layer", "exit_head", "verify_from", "skip_attention", "skip_mlp", "branches",
    "nodes", "beam", "state_layer", "drafts",
)  # fmt: skip
_LENGTH = tyro.conf.arg(metavar="INT|ROWS:INT,...")
_ESCAPE = "surrogateescape"  # bytes that are not UTF-8 come through text unharmed


@dataclasses.dataclass(frozen=True)
class Generate:
    """Continue prompts from arguments, files, or standard input."""

    prompts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to continue."""
    file: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A file to continue, may be given several times; `-` is standard input, the default."""
    model: str = "tiny"
    """A bundled model, a directory (Orbax, Hugging Face or Meta layout), or a hub id."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    method: str = "ar"
    """How to decode; see `bytelax methods`."""
    synchronous: float | None = None
    """Share of a BLT's rows that must have closed a patch before the global transformer runs for
    them together; rows wait. `ar` alone."""
    draft_length: Annotated[str | None, _LENGTH] = None
    """Bytes proposed in each round, by the number of rows that are running if so given. A method
    that drafts has its own default."""
    draft_model: str | None = None
    """The small model of `draft-model`: as `--model`."""
    draft_layers: int | None = None
    """Decoder layers that `blt-s` drafts with; all by default."""
    latent: Literal["reuse", "refresh"] | None = None
    """What `blt-s` and `blt-dv` draft on: the latent at hand, or one renewed by a second pass."""
    block_size: Annotated[str | None, _LENGTH] = None
    """Bytes in a block of `blt-d` and `blt-dv`; `blt-dv` takes a table as `--draft-length`."""
    unmask: Literal["confidence", "entropy", "entropy-minus-max", "one-step"] | None = None
    """Which masked bytes of a block each pass fills."""
    alpha: float | None = None
    """Confidence: fill bytes that are more probable than this."""
    gamma: float | None = None
    """Entropy: fill bytes whose entropies add up to at most this, in nats."""
    open_patch: Literal["latest", "truncated", "finish"] | None = None
    """What a block of `blt-d` reads that starts within a patch."""
    min_confidence: Annotated[str | None, tyro.conf.arg(metavar="FLOAT|adaptive")] = None
    """End a draft behind the first byte that its drafter thought less probable than this,
    or than a threshold that follows what each row keeps: "adaptive"."""
    verify: Literal["byte", "block"] | None = None
    """Judge sampled drafts byte by byte, or as a block."""
    exit_layer: int | None = None
    """Layers that `early-exit` and `composed` draft with; half of them by default."""
    exit_head: bool | None = None
    """Read the exit by its own head; by default where there is one."""
    verify_from: Literal["exit", "embedding"] | None = None
    """Verify from the states that an exit computed, or anew."""
    skip_attention: tuple[int, ...] | None = None
    """Blocks whose attention `layer-skip` skips, from 0."""
    skip_mlp: tuple[int, ...] | None = None
    """Blocks whose SwiGLU `layer-skip` skips."""
    branches: tuple[int, ...] | None = None
    """Children of a node on each level: `medusa` drafts a tree."""
    nodes: int | None = None
    """Nodes of a tree that are verified."""
    beam: int | None = None
    """Nodes of each level that go on: `eagle` drafts a tree."""
    state_layer: int | None = None
    """Depth of the state that `two-byte` reads; the last one by default."""
    drafts: int | None = None
    """Drafts among which `spectr` chooses."""
    max_new_bytes: int = 128
    """Most bytes to emit for each prompt."""
    window: int | None = None
    """Pad every window that is verified to that many bytes."""
    temperature: float = 0.0
    """0 takes the likeliest byte."""
    top_k: int = 0
    """Sample among that many likeliest bytes; 0 among all."""
    top_p: float = 1.0
    """Sample among the likeliest bytes that hold this much probability."""
    seed: int = 0
    """Prompt i is sampled with seed + i."""
    stop: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A string that ends a continuation; may be given several times."""
    allow_eos: bool = True
    """Let the model end a continuation by itself."""
    logprobs: bool = False
    """Add the log-probability of each byte to the JSON."""
    stream: bool = False
    """Print the continuation of a single prompt as it comes."""
    json: bool = False
    """Print results and statistics as JSON."""

    def run(self) -> None:
        prompts = self._prompts()
        keywords = {
            "method": self.method,
            "max_new_bytes": self.max_new_bytes,
            "draft_length": _length("--draft-length", self.draft_length),
            "block_size": _length("--block-size", self.block_size),
            "min_confidence": _threshold(self.min_confidence),
            **{name: getattr(self, name) for name in _METHOD_OPTIONS},
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "stop": self.stop,
            "allow_eos": self.allow_eos,
        }
        if self.stream and (self.json or self.logprobs or len(prompts) > 1):
            raise ValueError("--stream takes one prompt, and neither --json nor --logprobs")
        if self.logprobs and not self.json:
            raise ValueError("--logprobs is printed as JSON only: add --json")
        model = self.loading.load(self.model)
        if self.draft_model is not None:
            # Overrides are the large model's.
            keywords["draft_model"] = load(self.draft_model, dtype=self.loading.dtype)
        if self.stream:
            for piece in stream(model, prompts[0], seed=self.seed, errors=_ESCAPE, **keywords):
                sys.stdout.buffer.write(piece.encode("utf-8", _ESCAPE))
                sys.stdout.buffer.flush()
            sys.stdout.buffer.write(b"\n")
            return
        output = generate(model, prompts, seeds=self.seed, logprobs=self.logprobs, **keywords)
        if self.json:
            print(json_line(to_json(output)))
        else:
            for result in output.results:
                sys.stdout.buffer.write(result.bytes + b"\n")

    def _prompts(self) -> list[bytes]:
        # Arguments that are not UTF-8 arrive with their bytes escaped.
        prompts = [prompt.encode("utf-8", _ESCAPE) for prompt in self.prompts]
        files = self.file
        if not prompts and not files:
            files = (Path("-"),)
        for path in files:
            stdin = str(path) == "-"
            prompts.append(sys.stdin.buffer.read() if stdin else path.read_bytes())
        return prompts


def _length(flag: str, text: str | None) -> int | dict[int, int] | None:
    """A length of drafts, or one by the number of rows."""
    if text is None:
        return None
    try:
        if ":" not in text:
            return int(text)
        return {int(rows): int(n) for rows, n in (part.split(":") for part in text.split(","))}
    except ValueError:
        raise ValueError(f"{flag} takes a number, or ROWS:NUMBER,..., got {text!r}") from None


def _threshold(text: str | None) -> float | str | None:
    """A threshold of confidence, or the word for one that adapts."""
    if text is None or text == "adaptive":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--min-confidence takes a number, or adaptive, got {text!r}") from None


def to_json(output: Output) -> dict:
    """What `--json` prints."""
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
