"""The command line: `bytelax generate | train | calibrate | bench | ...`: see `bytelax --help`."""

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from bytelax import compiling
from bytelax.commands import train
from bytelax.commands.bench import Bench
from bytelax.commands.calibrate import Calibrate
from bytelax.commands.convert import Convert
from bytelax.commands.demo import Demo
from bytelax.commands.eval import Eval
from bytelax.commands.generate import Generate
from bytelax.commands.layers import Layers
from bytelax.commands.methods import Methods

Command = (
    Annotated[Generate, tyro.conf.subcommand("generate")]
    | Annotated[train.Train, tyro.conf.subcommand("train")]
    | Annotated[Calibrate, tyro.conf.subcommand("calibrate")]
    | Annotated[Layers, tyro.conf.subcommand("layers")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Methods, tyro.conf.subcommand("methods")]
)


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command. Bad input is one line on standard error and exit code 2."""
    try:
        command = _parse(sys.argv[1:] if args is None else args)
        compiling.keep_programs()
        command.run()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError) as error:
        print(f"bytelax: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bytelax: interrupted", file=sys.stderr)
        return 130
    return 0


def _parse(args: Sequence[str]):
    """The command that `args` spell; tyro's framed errors as one line."""
    if not args:
        raise ValueError("a command is missing; see --help")
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            default = train.default(args)
            return tyro.cli(Command, prog="bytelax", args=args, default=default)
    except SystemExit as exit:
        if not exit.code:
            raise
        raise ValueError(f"{_first_part(errors.getvalue())}; see --help") from None


def _first_part(framed: str) -> str:
    """The message in tyro's frame: below the title and above the first rule."""
    lines = [line.strip("│ ") for line in framed.splitlines()[1:]]
    parts = itertools.groupby(lines, lambda line: bool(line) and not set(line) <= set("─-╰╯"))
    told = next((" ".join(part) for is_text, part in parts if is_text), "invalid arguments")
    return told.rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
