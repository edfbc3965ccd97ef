"""`bytelax demo`: shows every method side by side, within a minute."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.json_line import json_line
from bytelax.commands.load_flags import LoadFlags
from bytelax.demo import page, terminal
from bytelax.demo.comparison import PROMPTS, compare, to_json


@dataclasses.dataclass(frozen=True)
class Demo:
    """Continue three prompts with every method, and show where each byte came from."""

    model: str = "tiny"
    """A bundled model, a directory (Orbax, Hugging Face or Meta layout), or a hub id."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    max_new_bytes: int = 160
    """Maximum number of bytes to generate for each prompt."""
    html: Path | None = None
    """Write the comparison to this file, as a self-contained HTML page."""
    json: bool = False
    """Print the results as JSON."""

    def run(self) -> None:
        """Runs the command."""
        if self.max_new_bytes < 1:
            raise ValueError(f"max_new_bytes must be at least 1, got {self.max_new_bytes}")
        if self.html is not None and not self.html.parent.is_dir():
            raise ValueError(f"--html {self.html}: there is no directory {self.html.parent}")
        model = self.loading.load(self.model)
        comparison = compare(model, PROMPTS, max_new_bytes=self.max_new_bytes)
        if self.html is not None:
            self.html.write_text(page.render(comparison), "utf-8")
        if self.json:
            print(json_line(to_json(comparison)))
        else:
            terminal.show(comparison)
            if self.html is not None:
                print(f"The same as a page: {self.html}")
