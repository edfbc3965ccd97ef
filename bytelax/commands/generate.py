"""The flags of `bytelax generate`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.load_flags import DecodeLoadFlags
from bytelax.commands.mesh import MeshFlag
from bytelax.commands.method_flags import MethodFlags
from bytelax.commands.model_flag import ModelFlag
from bytelax.pods.configs import MeshConfig, Processes


@dataclasses.dataclass(frozen=True)
class Generate:
    """Continue prompts from arguments, files, or standard input."""

    prompts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts to continue."""
    file: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A file to continue; `-` is standard input, which is the default."""
    model: ModelFlag = "tiny"
    loading: Annotated[DecodeLoadFlags, tyro.conf.arg(name="")] = DecodeLoadFlags()
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
