"""`bytelax convert`: writes a model in another checkpoint layout."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bytelax.commands import console, flags


@dataclasses.dataclass(frozen=True)
class Convert:
    """Flags of `bytelax convert`."""

    model: flags.Model
    out: Path
    """Directory to write; it must not exist, or be empty, or else see `--overwrite`."""
    loading: Annotated[flags.Loading, tyro.conf.arg(name="")] = flags.Loading()
    to: Literal["orbax", "huggingface"] = "orbax"
    """Layout to write."""
    int8: bool = False
    """Round the matrices to int8, a quarter of float32. Only bytelax reads such a file."""
    overwrite: bool = False
    """Replace a model that was written to the directory before."""
    json: bool = False
    """Print a summary as JSON."""


def run(command: Convert) -> None:
    """Converts the model."""
    import jax

    from bytelax import checkpoints

    model = command.loading.load(command.model)
    if command.to == "huggingface" and not command.int8:
        checkpoints.check_transformers(model.config)
    checkpoints.write(
        command.out,
        model.config,
        model.params,
        layout=command.to,
        overwrite=command.overwrite,
        int8=command.int8,
    )
    count = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    if command.json:
        found = {"out": str(command.out), "layout": command.to, "parameters": count}
        print(console.json_line(found))
    else:
        print(f"{command.out}: {count:,} parameters in the {command.to} layout")
