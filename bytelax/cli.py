"""The command line: `bytelax generate | convert | demo | methods`."""

import contextlib
import io
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from bytelax.commands.convert import Convert
from bytelax.commands.demo import Demo
from bytelax.commands.generate import Generate
from bytelax.commands.methods import Methods

Command = (
    Annotated[Generate, tyro.conf.subcommand("generate")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Methods, tyro.conf.subcommand("methods")]
)


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command. Bad input is one line on standard error and exit code 2."""
    try:
        command = _parse(sys.argv[1:] if args is None else args)
        command.run()
    except (ValueError, TypeError, OSError) as error:
        print(f"bytelax: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bytelax: interrupted", file=sys.stderr)
        return 130
    return 0


def _parse(args: Sequence[str]):
    """The command that `args` spell; tyro's framed errors as one line."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(Command, prog="bytelax", args=args)
    except SystemExit as exit:
        if not exit.code:
            raise
        lines = [line.strip("│ ") for line in errors.getvalue().splitlines()]
        told = [line for line in lines if line and line[0] not in "╭╰─"] or ["invalid arguments"]
        first = " ".join(told[:2]) if told[0].endswith(":") else told[0]
        raise ValueError(f"{first.rstrip('.')}; see --help") from None


if __name__ == "__main__":
    sys.exit(main())
