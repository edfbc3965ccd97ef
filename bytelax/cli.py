"""The command line `bytelax generate | train | calibrate | bench | ...`; see `bytelax --help`."""

import contextlib
import importlib
import io
import itertools
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NoReturn

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


def script() -> int:
    """Runs the command of this process, which Ctrl-C ends with a one-line message at any time.

    Warnings are one line each, without the place in the source.

    An interrupt while JAX is imported would show a traceback, or be lost in one of its callbacks.
    Until the command starts, an interrupt therefore ends the process at once. From then on it is a
    KeyboardInterrupt, so that commands can clean up.
    """

    def leave(*_) -> NoReturn:
        os.write(2, b"bytelax: interrupted\n")
        os._exit(130)

    def warn(message, *_, **__) -> None:
        print(f"bytelax: {' '.join(str(message).split())}", file=sys.stderr)

    signal.signal(signal.SIGINT, leave)
    warnings.showwarning = warn
    try:
        return main(started=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    except KeyboardInterrupt:  # raised outside of the handler in `main`
        leave()
    finally:
        signal.signal(signal.SIGINT, leave)  # an interrupt at exit would show a traceback


def main(args: Sequence[str] | None = None, *, started: Callable[[], object] = lambda: None) -> int:
    """Runs a command and returns its exit code.

    Bad input is reported in one line on standard error, with exit code 2.

    Args:
      args: the arguments; by default those of the process.
      started: called when the command is imported, before it runs.
    """
    args = sys.argv[1:] if args is None else args
    try:
        _check_output()
        _run(args, started)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        _drop_output()
        return 141
    except KeyboardInterrupt:
        _drop_output()
        print("bytelax: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return _fail(error, args)
    return 0


def _run(args: Sequence[str], started: Callable[[], object]) -> None:
    if args[:1] == ["--version"]:
        print(f"bytelax {bytelax.__version__}")
        return
    try:
        command, flags = _parse(args)
    except SystemExit:  # help was printed
        return
    if args[0] not in ("methods", "pack"):  # they run no model
        from bytelax import compiling, loading  # noqa: F401  # most of what `run` imports

        compiling.keep_programs()
        # A terminal shows what it waits for.
        logging.getLogger(compiling.__name__).setLevel(logging.ERROR)
    started()
    command.run(flags)


def _parse(args: Sequence[str]) -> tuple[ModuleType, Any]:
    """Returns the module of a command and its flags.

    Raises:
      ValueError: there is something wrong with them; the message is one line.
      SystemExit: help was asked for, and printed.
    """
    name, *rest = _chosen("bytelax", COMMANDS, args)
    command = importlib.import_module(f"bytelax.commands.{name}")
    import tyro

    # A command is a module; see COMMANDS for what it may have.
    if hasattr(command, "KINDS"):  # each with flags of its own
        told = {kind: cls.__doc__.splitlines()[0] for kind, cls in command.KINDS.items()}
        kind, *rest = _chosen(f"bytelax {name}", told, rest)
        prog, summary = f"bytelax {name} {kind}", None
        flags, default = command.KINDS[kind], command.default(kind, rest)
    else:
        prog, summary = f"bytelax {name}", COMMANDS[name]
        flags, default = getattr(command, name.capitalize()), tyro.MISSING_NONPROP
        if hasattr(command, "default"):
            default = command.default(rest)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            found = tyro.cli(flags, prog=prog, description=summary, args=rest, default=default)
    except SystemExit as exit:
        if not exit.code:
            raise
        raise ValueError(f"{_first_part(errors.getvalue())}; see {prog} --help") from None
    return command, found


def _chosen(prog: str, known: Mapping[str, str], args: Sequence[str]) -> Sequence[str]:
    """Returns the arguments, of which the first is a known word; prints those for `--help`."""
    if not args:
        raise ValueError(f"a command is missing, one of {', '.join(known)}; see {prog} --help")
    if args[0] in ("-h", "--help"):
        width = max(map(len, known))
        print(f"usage: {prog} COMMAND [OPTIONS]\n")
        for name, told in known.items():
            print(f"  {name:{width}}  {told}")
        print(f"\nOptions of a command: {prog} COMMAND --help")
        raise SystemExit
    if args[0] not in known:
        from bytelax.options import meant

        hint = meant(args[0], known) or f"see {prog} --help"
        raise ValueError(f"there is no `{prog} {args[0]}`; {hint}")
    return args


def _first_part(framed: str) -> str:
    """Returns what an error of tyro says first, between the title of its frame and the next rule.

    The class of the flags is not named. A hint at what was meant comes with it.
    """
    lines = [line.strip("│ ") for line in framed.splitlines()[1:]]
    parts = itertools.groupby(lines, lambda line: bool(set(line) - set("─-╰╯")))
    told = next((" ".join(part) for is_text, part in parts if is_text), "").rstrip(".")
    told = re.sub(r"^Error parsing [A-Z]\w*: ", "", told)
    told = told.replace("invalid literal for int() with base 10", "not a whole number")
    told = told.replace("could not convert string to float", "not a number")
    if "valid parse for arguments" in told:  # of a flag that takes several values
        return f"{told}; it reads all up to the next flag, so other words come first"
    hint = "Perhaps you meant:"
    return f"{told}. {hint} {lines[lines.index(hint) + 1]}" if hint in lines else told


def _fail(error: Exception, args: Sequence[str]) -> int:
    """Prints what is wrong with the input in one line; raises errors that are not the input's."""
    told = _message(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in told:
        told = "there is not enough memory for this; ask for less at once"
    elif found := re.search("a kernel of bytelax did not start .*", told):
        told = found[0]
    elif not isinstance(error, ValueError | OSError):
        raise error
    _drop_output()
    print(f"bytelax: {' '.join(_with_flags(told, args).split())}", file=sys.stderr)
    return 2


def _message(error: Exception) -> str:
    """What an error says, without the number of one of the operating system's."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


def _with_flags(message: str, args: Sequence[str]) -> str:
    """Writes the names of given flags in a message as on the command line: --draft-length."""
    for flag in {arg.partition("=")[0] for arg in args if arg.startswith("--")}:
        name = flag.removeprefix("--").replace("-", "_")
        place = r"(?<![\w./'-])" if "_" in name or "." in name else "^"  # others may be plain words
        message = re.sub(rf"{place}{re.escape(name)}(?![\w.]*\w)", flag, message)
    return message


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


if __name__ == "__main__":
    sys.exit(script())
