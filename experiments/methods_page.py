"""Prints docs/methods.md, the reference of all methods and options, from `bytelax.options`.

python -m experiments.methods_page > docs/methods.md
"""

import inspect

from bytelax.commands.methods import table
from bytelax.options import METHODS

_USE = """\
Made by `python -m experiments.methods_page`. Which to try first: [speed.md](speed.md). Choose a
method on the command line by `--method blt-s --draft-length 4`, and in `bytelax.generate` by
`method="blt-s", draft_length=4` or by its class, which an editor completes:
`method=bytelax.options.BltS(draft_length=4)`. With any method `window=W` pads windows to W bytes:
[same_bytes.md](same_bytes.md).
"""

_ANY, _BYTES, _BLT = "any model", "a byte transformer", "a BLT"
# Which models a method runs on, and what has to be trained for it.
_NEEDS = {
    "ar": (_ANY, ""),
    "tuned": (_ANY, ""),
    "lookup": (_ANY, ""),
    "draft-model": (_ANY, "a small model"),
    "spectr": (_BYTES, "a small model"),
    "blt-s": (_BLT, "for predicted latents a head"),
    "blt-d": (_BLT, "the model, to fill blocks"),
    "blt-dv": (_BLT, "the model, to fill blocks"),
    "early-exit": (_BYTES, ""),
    "layer-skip": (_BYTES, ""),
    "medusa": (_ANY, "heads; trees for byte transformers alone"),
    "two-byte": (_BYTES, "heads"),
    "composed": (_BYTES, "heads"),
    "eagle": (_ANY, "heads; trees for byte transformers alone"),
    "dflash": (_ANY, "heads"),
}


def markdown() -> str:
    """Generates the reference of all methods and options as Markdown."""
    lines = ["# Methods", "", *_USE.splitlines(), ""]
    lines += [
        "| method | class | runs on | has to be trained | lossless |",
        "|---|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        runs_on, trained = _NEEDS[name]
        lossless = "yes" if method.lossless else "**no**"
        cells = f"[`{name}`](#{name})", f"`{method.__name__}`", runs_on, trained, lossless
        lines.append(f"| {' | '.join(cells)} |")
    for row in table():
        more = " ".join((inspect.getdoc(METHODS[row["name"]]) or "").split("\n")[2:])
        lines += ["", f"## {row['name']}", "", row["description"], *(["", more] if more else [])]
        if row["options"]:
            lines.append("")
        for option in row["options"]:
            choices = f" One of {', '.join(option['choices'])}." if option["choices"] else ""
            default = "" if option["needed"] else f" = {option['default']}"
            lines.append(f"- `{option['name']}{default}`: {option['help']}{choices}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
