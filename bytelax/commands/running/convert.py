"""`bytelax convert`: converts a model from one checkpoint layout to another."""

import jax

from bytelax import checkpoints
from bytelax.commands.convert import Convert
from bytelax.commands.json_line import json_line
from bytelax.commands.running.loading import load


def run(flags: Convert) -> None:
    """Runs the command."""
    model = load(flags.model, flags.loading)
    if flags.to == "huggingface":
        checkpoints.check_transformers(model.config)
    checkpoints.write(flags.out, model.config, model.params, layout=flags.to)
    count = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    if flags.json:
        print(json_line({"out": str(flags.out), "layout": flags.to, "parameters": count}))
    else:
        print(f"{flags.out}: {count:,} parameters in the {flags.to} layout")
