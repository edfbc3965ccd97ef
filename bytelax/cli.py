"""The command line: `bytelax generate | train | calibrate | bench | ...`: see `bytelax --help`."""

import contextlib
import io
import itertools
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import jax
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
        _check_output()
        command = _parse(sys.argv[1:] if args is None else args)
        compiling.keep_programs()
        command.run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        _drop_output()
        return 141
    except (ValueError, OSError, MemoryError, jax.errors.JaxRuntimeError) as error:
        return _fail(error)
    except KeyboardInterrupt:
        _drop_output()
        print("bytelax: interrupted", file=sys.stderr)
        return 130
    return 0


def _fail(error: Exception) -> int:
    full = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
    if isinstance(error, jax.errors.JaxRuntimeError) and not full:
        raise error  # a defect, and not the input
    _drop_output()
    told = "there is not enough memory for this; ask for less at once" if full else str(error)
    print(f"bytelax: {' '.join(told.split())}", file=sys.stderr)
    return 2


def _check_output() -> None:
    """Lets text through that is not UTF-8, such as the name of a file."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")


def _drop_output() -> None:
    """Writes what is buffered, or drops what cannot be: Python tries again as it exits."""
    try:
        sys.stdout.flush()
    except (AttributeError, ValueError):  # there is none
        pass
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
