"""`bytelax demo`: shows what the methods of a model write and cost, side by side."""

import jax

from bytelax.commands.demo import Demo
from bytelax.commands.json_line import json_line
from bytelax.commands.running.loading import load
from bytelax.demo import page, terminal
from bytelax.demo.comparison import PROMPTS, STOP, compare, to_json


def run(flags: Demo) -> None:
    """Runs the command."""
    if flags.max_new_bytes < 1:
        raise ValueError(f"max_new_bytes must be at least 1, got {flags.max_new_bytes}")
    if flags.html is not None and not flags.html.parent.is_dir():
        raise ValueError(f"--html {flags.html}: there is no directory {flags.html.parent}")
    model = load(flags.model, flags.loading)
    comparison = compare(model, PROMPTS, max_new_bytes=flags.max_new_bytes, stop=STOP)
    platform = jax.default_backend()
    if flags.html is not None:
        flags.html.write_text(page.render(comparison, platform=platform), "utf-8")
    if flags.json:
        print(json_line(to_json(comparison)))
    else:
        terminal.show(comparison, platform=platform)
        if flags.html is not None:
            print(f"The same as a page: {flags.html}")
