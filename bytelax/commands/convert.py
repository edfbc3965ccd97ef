"""`bytelax convert`: converts a model from one checkpoint layout to another."""

import dataclasses
from pathlib import Path
from typing import Annotated

import jax
import tyro

from bytelax import checkpoints
from bytelax.checkpoints import Layout
from bytelax.commands.json_line import json_line
from bytelax.commands.load_flags import LoadFlags


@dataclasses.dataclass(frozen=True)
class Convert:
    """Write a model in another layout, for transformers or for Meta's code."""

    source: tyro.conf.Positional[str]
    """A bundled model, a directory (Orbax, Hugging Face or Meta layout), or a hub id."""
    target: tyro.conf.Positional[Path]
    """Directory to write; it must not exist, or be empty."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    to: Layout = "orbax"
    """Layout to write."""
    json: bool = False
    """Print a summary as JSON."""

    def run(self) -> None:
        """Runs the command."""
        model = self.loading.load(self.source)
        if self.to == "huggingface":
            checkpoints.check_transformers(model.config)
        checkpoints.write(self.target, model.config, model.params, layout=self.to)
        count = sum(leaf.size for leaf in jax.tree.leaves(model.params))
        if self.json:
            print(json_line({"target": str(self.target), "layout": self.to, "parameters": count}))
        else:
            print(f"{self.target}: {count:,} parameters in the {self.to} layout")
