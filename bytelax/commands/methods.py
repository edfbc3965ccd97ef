"""`bytelax methods`: what there is to decode with."""

import dataclasses
import inspect

from bytelax.commands.json_line import json_line
from bytelax.methods import METHODS, options_of


@dataclasses.dataclass(frozen=True)
class Methods:
    """List the decoding methods and their options."""

    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        rows = [
            {
                "name": name,
                "description": inspect.getdoc(factory).splitlines()[0],
                "options": list(options_of(name)),
            }
            for name, factory in METHODS.items()
        ]
        if self.json:
            print(json_line(rows))
            return
        for row in rows:
            options = ", ".join(row["options"])
            print(f"{row['name']:14}{row['description']} Options: {options}.")
