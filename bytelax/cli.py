"""The command line `bytelax generate | train | calibrate | bench | ...`; see `bytelax --help`."""

import argparse
import importlib
import logging
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import bytelax

# The module of that name in `bytelax.commands` holds the flags of a command, as the class of that
# name or as several in `KINDS`, and what it does, as the function `run`. Only `run` imports JAX.
COMMANDS = {
    "generate": "Continue prompts from arguments, files, or standard input.",
    "demo": "Show plain and drafted decoding side by side, each byte coloured by who wrote it.",
    "methods": "List the decoding methods and their options.",
    "bench": "Time decoding methods against plain decoding, in alternating runs in one process.",
    "tune": "Find the fastest lossless setting for a model on this machine, for --method tuned.",
    "score": "Score files: bits per byte under a model, of each and of all.",
    "patches": "Cut files into patches by an entropy model, the only part of a BLT that is loaded.",
    "train": "Train a model, or resume a training run.",
    "pack": "Cut training text into documents once, for hosts that read only what they train on.",
    "calibrate": "Find the entropy threshold at which patches have a given mean length.",
    "convert": "Write a model in another layout: of transformers, or bytelax's own.",
}


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; bad input is a line on standard error, and 2.

    Args:
      args: the arguments; by default those of the process.
    """
    args = sys.argv[1:] if args is None else args
    try:
        command, flags = _parse(args)
        if args[0] not in ("methods", "pack"):  # they run no model
            from bytelax import compiling

            compiling.keep_programs()
            # A terminal shows what it waits for.
            logging.getLogger(compiling.__name__).setLevel(logging.ERROR)
        command.run(flags)
        sys.stdout.flush()
    except (ValueError, OSError) as error:
        print(f"bytelax: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bytelax: interrupted", file=sys.stderr)
        return 130
    except SystemExit as exit:  # help, or flags that are refused
        return int(exit.code or 0)
    return 0


def _parse(args: Sequence[str]) -> tuple[ModuleType, Any]:
    """Returns the module of a command and its flags; raises SystemExit if they are refused."""
    name, rest = _chosen("bytelax", COMMANDS, args), args[1:]
    command = importlib.import_module(f"bytelax.commands.{name}")
    import tyro

    prog = f"bytelax {name}"
    default: Any = tyro.MISSING_NONPROP
    if hasattr(command, "KINDS"):  # each with flags of its own
        told = {kind: cls.__doc__.splitlines()[0] for kind, cls in command.KINDS.items()}
        kind, rest = _chosen(prog, told, rest), rest[1:]
        flags, default = command.KINDS[kind], command.default(kind, rest)
        return command, tyro.cli(flags, prog=f"{prog} {kind}", args=rest, default=default)
    if hasattr(command, "default"):
        default = command.default(rest)
    flags, about = getattr(command, name.capitalize()), COMMANDS[name]
    return command, tyro.cli(flags, prog=prog, description=about, args=rest, default=default)


def _chosen(prog: str, known: Mapping[str, str], args: Sequence[str]) -> str:
    """Returns the first argument, one of the known words."""
    parser = argparse.ArgumentParser(prog)
    version = f"bytelax {bytelax.__version__}"
    parser.add_argument("--version", action="version", version=version)
    words = parser.add_subparsers(dest="word", required=True, metavar="COMMAND")
    for name, told in known.items():
        words.add_parser(name, help=told, add_help=False)
    return parser.parse_args(args[:1]).word


if __name__ == "__main__":
    sys.exit(main())
