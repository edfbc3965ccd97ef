"""The command line `bytelax generate | train | calibrate | bench | ...`; see `bytelax --help`."""

import argparse
import contextlib
import importlib
import io
import itertools
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
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


_XLA_LOG = "TF_CPP_MIN_LOG_LEVEL"


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """Settings of the process while a command runs; afterwards they are as before."""
    news = logging.getLogger("bytelax.compiling")
    before = os.environ.get(_XLA_LOG), news.level, warnings.formatwarning
    # For each program in its cache, XLA warns of missing features that are not instructions
    # (openxla/xla#44565). Errors that matter are exceptions. It reads this as JAX is imported.
    os.environ.setdefault(_XLA_LOG, "3")
    news.setLevel(logging.ERROR)  # a terminal shows what it waits for
    warnings.formatwarning = _warning
    try:
        yield
    finally:
        xla_log, level, warnings.formatwarning = before
        news.setLevel(level)
        if xla_log is None:
            del os.environ[_XLA_LOG]


def _warning(message, *_, **__) -> str:
    """A line, as errors are: a place in the source is for who wrote the call."""
    return f"bytelax: {' '.join(str(message).split())}\n"


@_settings()
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
        command.run(flags)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, in which Python would flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("bytelax: interrupted", file=sys.stderr)
        return 130
    except SystemExit as exit:  # help was printed
        return int(exit.code or 0)
    except Exception as error:
        print(f"bytelax: {' '.join(_with_flags(_message(error), args).split())}", file=sys.stderr)
        return 2
    return 0


def _message(error: Exception) -> str:
    """What is wrong with the input; raises errors that are not the input's."""
    message = str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in message:
        return "there is not enough memory for this; ask for less at once"
    if found := re.search("a kernel of bytelax did not start .*", message):
        return found[0]
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, ValueError | OSError):
        return message
    raise error


def _with_flags(message: str, args: Sequence[str]) -> str:
    """Writes the names of given flags in a message as on the command line: --draft-length."""
    for flag in {arg.partition("=")[0] for arg in args if arg.startswith("--")}:
        name = flag.removeprefix("--").replace("-", "_")
        place = r"(?<![\w./'-])" if "_" in name or "." in name else "^"  # others may be plain words
        message = re.sub(rf"{place}{re.escape(name)}(?![\w.]*\w)", flag, message)
    return message


def _parse(args: Sequence[str]) -> tuple[ModuleType, Any]:
    """Returns the module of a command and its flags; raises ValueError if they are refused."""
    name, rest = _chosen("bytelax", COMMANDS, args), args[1:]
    command = importlib.import_module(f"bytelax.commands.{name}")
    prog, default = f"bytelax {name}", None
    if hasattr(command, "KINDS"):  # each with flags of its own
        summaries = {kind: cls.__doc__.splitlines()[0] for kind, cls in command.KINDS.items()}
        kind, rest = _chosen(prog, summaries, rest), rest[1:]
        flags, default = command.KINDS[kind], command.default(kind, rest)
        return command, _flags(flags, f"{prog} {kind}", None, rest, default)
    if hasattr(command, "default"):
        default = command.default(rest)
    return command, _flags(getattr(command, name.capitalize()), prog, COMMANDS[name], rest, default)


def _flags(cls: type, prog: str, about: str | None, args: Sequence[str], default: Any) -> Any:
    """The flags of a command by tyro; of its messages only the first part is shown."""
    import tyro

    default = tyro.MISSING_NONPROP if default is None else default
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(cls, prog=prog, description=about, args=args, default=default)
    except SystemExit as exit:
        if not exit.code:
            raise
        lines = [line.strip("│ ") for line in errors.getvalue().splitlines()[1:]]
        parts = itertools.groupby(lines, lambda line: bool(set(line) - set("─-╰╯")))
        message = next(" ".join(part) for is_text, part in parts if is_text)
        message = re.sub(r"^Error parsing \w+: ", "", message)  # the flag is named anyway
        message = message.rstrip(".")
        message = message.replace("invalid literal for int() with base 10", "not a whole number")
        message = message.replace("could not convert string to float", "not a number")
        if "valid parse for arguments" in message:  # of a flag that takes several values
            message += "; it reads all up to the next flag, so other words come first"
        hint = "Perhaps you meant:"
        message += f". {hint} {lines[lines.index(hint) + 1]}" if hint in lines else ""
        raise ValueError(f"{message}; see {prog} --help") from None


class _Words(argparse.ArgumentParser):
    def error(self, message: str):
        raise ValueError(f"{message}; see {self.prog} --help")


def _chosen(prog: str, known: Mapping[str, str], args: Sequence[str]) -> str:
    """Returns the first argument, one of the known words."""
    parser = _Words(prog)
    version = f"bytelax {bytelax.__version__}"
    parser.add_argument("--version", action="version", version=version)
    words = parser.add_subparsers(dest="word", required=True, metavar="COMMAND")
    for name, summary in known.items():
        words.add_parser(name, help=summary, add_help=False)
    return parser.parse_args(args[:1]).word


if __name__ == "__main__":
    sys.exit(main())
