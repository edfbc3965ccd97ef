"""The command line `bytelax generate | train | calibrate | bench | ...`; see `bytelax --help`."""

import difflib
import importlib
import importlib.metadata
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

# The flags of a command are the class of that name in `bytelax.commands`, which imports no JAX, and
# it runs as the function `run` of the module of that name in `bytelax.commands.running`.
COMMANDS = {
    "generate": "Continue prompts from arguments, files, or standard input.",
    "demo": "Continue prompts by plain decoding and with drafts, each byte with its origin.",
    "methods": "List the decoding methods and their options.",
    "bench": "Time decoding methods against plain decoding, in alternating runs in one process.",
    "score": "Score files: bits per byte under a model, of each and of all.",
    "patches": "Cut files into patches by an entropy model, the only part of a BLT that is loaded.",
    "train": "Train a model, or resume a training run.",
    "pack": "Cut training text into documents once, for hosts that read only what they train on.",
    "calibrate": "Find the entropy threshold at which patches have a given mean length.",
    "layers": "Find blocks to skip with `--method layer-skip`, on sample text.",
    "convert": "Write a model in another layout: of transformers, or bytelax's own.",
}


def main(
    args: Sequence[str] | None = None, *, when_imported: Callable[[], object] = lambda: None
) -> int:
    """Runs a command and returns its exit code.

    Bad input is reported in one line on standard error, with exit code 2.

    Args:
      args: the arguments; by default those of the process.
      when_imported: called once the command is imported and its arguments are parsed.
    """
    args = sys.argv[1:] if args is None else args
    try:
        _check_output()
        if not _tell(args):
            _run(args, when_imported)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        _drop_output()
        return 141
    except KeyboardInterrupt:
        _drop_output()
        print("bytelax: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return _fail(error)
    return 0


def _tell(args: Sequence[str]) -> bool:
    """Prints what needs no command to be imported; returns whether there was anything to print."""
    if args and args[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print("usage: bytelax COMMAND [OPTIONS]\n")
        print("\n".join(f"  {name:{width}}  {summary}" for name, summary in COMMANDS.items()))
        print("\nOptions of a command: bytelax COMMAND --help")
        return True
    if args and args[0] == "--version":
        print(f"bytelax {importlib.metadata.version('bytelax')}")
        return True
    return False


def _run(args: Sequence[str], when_imported: Callable[[], object]) -> None:
    command = _parse(args)
    running = importlib.import_module(f"bytelax.commands.running.{args[0]}")
    from bytelax import compiling

    compiling.keep_programs()
    when_imported()
    try:
        running.run(command)
    except ValueError as error:
        from bytelax.commands import parsing

        # Its class tells the user nothing: what is printed is the message alone.
        raise ValueError(parsing.with_flags(str(error), command)) from error


def _fail(error: Exception) -> int:
    """Prints what is wrong with the input in one line; raises errors that are not the input's."""
    full = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
    if not full and not isinstance(error, ValueError | OSError):
        raise error
    _drop_output()
    told = "there is not enough memory for this; ask for less at once" if full else _message(error)
    print(f"bytelax: {' '.join(told.split())}", file=sys.stderr)
    return 2


def _message(error: Exception) -> str:
    """What an error says, without the number of one of the operating system's."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def _check_output() -> None:
    """Makes standard output accept text that is not UTF-8, such as names of files."""
    if sys.stdout is None:
        raise OSError("standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")


def _drop_output() -> None:
    """Flushes standard output; if that fails, discards it, since Python flushes again at exit."""
    try:
        sys.stdout.flush()
    except (AttributeError, ValueError):  # there is no standard output
        pass
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parse(args: Sequence[str]) -> Any:
    """Parses the command line; raises a ValueError of one line for what is wrong in it."""
    if not args:
        raise ValueError("a command is missing; see --help")
    name = args[0]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f"did you mean {near[0]!r}?" if near else "see --help"
        raise ValueError(f"there is no command {name!r}; {meant}")
    from bytelax.commands import parsing

    return parsing.parse(name, args[1:])


if __name__ == "__main__":
    sys.exit(main())
