"""`bytelax generate`: generates continuations of prompts."""

import base64
import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import jax
import tyro

from bytelax.commands.json_line import json_line
from bytelax.commands.load_flags import LoadFlags
from bytelax.commands.mesh import MeshFlag
from bytelax.commands.method_flags import MethodFlags
from bytelax.generation import generate, stream
from bytelax.pods import distributed
from bytelax.pods.distributed import Processes
from bytelax.pods.mesh_config import MeshConfig
from bytelax.results import Output, Result

_ESCAPE = "surrogateescape"  # preserves bytes that are not UTF-8


@dataclasses.dataclass(frozen=True)
class Generate:
    """Continue prompts from arguments, files, or standard input."""

    prompts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to continue."""
    file: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A file to continue; `-` is standard input, which is the default."""
    model: str = "tiny"
    """A bundled model, a directory (Orbax, Hugging Face or Meta layout), or a hub id."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    mesh: MeshFlag = MeshConfig()
    """Mesh of devices: prompts are split over data and fsdp, the model over tensor."""
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()
    decoding: Annotated[MethodFlags, tyro.conf.arg(name="")] = MethodFlags()
    max_new_bytes: int = 128
    """Maximum number of bytes to generate for each prompt."""
    seed: int = 0
    """Random seed; prompt i is sampled with seed + i."""
    stop: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A string that ends a continuation."""
    allow_eos: bool = True
    """Let the model end a continuation with an EOS."""
    logprobs: bool = False
    """Add the log-probability of each byte to the JSON."""
    stream: bool = False
    """Print the continuation of a single prompt while it is generated."""
    json: bool = False
    """Print results and statistics as JSON."""

    def run(self) -> None:
        """Runs the command."""
        prompts = self._prompts()
        if self.stream and (self.json or self.logprobs or len(prompts) > 1):
            raise ValueError("--stream takes one prompt, and neither --json nor --logprobs")
        if self.logprobs and not self.json:
            raise ValueError("--logprobs is printed as JSON only: add --json")
        distributed.start(self.processes)
        keywords = {
            # Overrides apply to the large model only, not to a draft model.
            **self.decoding.keywords(self.loading.dtype),
            "max_new_bytes": self.max_new_bytes,
            "stop": [stop.encode("utf-8", _ESCAPE) for stop in self.stop],
            "allow_eos": self.allow_eos,
        }
        spread = self.mesh.size > 1 or jax.process_count() > 1
        model = self.loading.load(self.model, mesh=self.mesh if spread else None)
        if self.stream:
            for piece in stream(model, prompts[0], seed=self.seed, errors=_ESCAPE, **keywords):
                if not distributed.is_first():
                    continue
                sys.stdout.buffer.write(piece.encode("utf-8", _ESCAPE))
                sys.stdout.buffer.flush()
            if distributed.is_first():
                sys.stdout.buffer.write(b"\n")
            return
        output = generate(model, prompts, seeds=self.seed, logprobs=self.logprobs, **keywords)
        if not distributed.is_first():
            return
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
