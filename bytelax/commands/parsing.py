"""Parses the arguments of a command, and tells what is wrong with them in one line."""

import contextlib
import dataclasses
import difflib
import importlib
import io
import itertools
import re
import typing
from collections.abc import Iterator, Sequence
from typing import Any


def parse(name: str, args: Sequence[str]) -> Any:
    """Returns the flags of the command of this name.

    Args:
      name: the command; its flags are the class of that name in `bytelax.commands`.
      args: the arguments behind the name.

    Raises:
      ValueError: an argument is wrong; the message is one line that names its flag.
    """
    import tyro

    module = importlib.import_module(f"bytelax.commands.{name}")
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            default = getattr(module, "default", lambda _: tyro.MISSING_NONPROP)(args)
            return tyro.cli(
                getattr(module, name.capitalize()),
                prog=f"bytelax {name}",
                args=args,
                default=default,
            )
    except SystemExit as exit:
        if not exit.code:
            raise
        framed = errors.getvalue()
    kind = f" {args[0]}" if args and args[0] in getattr(module, "KINDS", ()) else ""
    told = _plain(_first_part(framed), framed, args)
    raise ValueError(f"{told}; see bytelax {name}{kind} --help")


def with_flags(message: str, command: Any) -> str:
    """Writes names of a command's fields in an error message as flags.

    A name with an underscore or a dot is replaced wherever it stands, and any other only at the
    beginning of the message: `max_new_bytes must be` becomes `--max-new-bytes must be`.
    """
    for name in sorted(_names(command), key=len, reverse=True):
        place = r"(?<![\w./'-])" if {"_", "."} & set(name) else "^"
        message = re.sub(rf"{place}{re.escape(name)}(?![\w.]*\w)", as_flag(name), message)
    return message


def _names(part: Any, prefix: str = "") -> Iterator[str]:
    """Names of the fields of nested dataclasses as in error messages: `optimizer.steps`."""
    hints = typing.get_type_hints(type(part), include_extras=True)
    for field in dataclasses.fields(part):
        extras = getattr(hints[field.name], "__metadata__", ())
        value, own = getattr(part, field.name), prefix + field.name
        if any(getattr(x, "prefix_name", True) is False for x in extras):
            own = field.name
        if not dataclasses.is_dataclass(value):
            yield own
        elif any(getattr(x, "name", None) == "" for x in extras):
            yield from _names(value, prefix)
        else:
            yield from _names(value, f"{own}.")


def as_flag(name: str) -> str:
    """Writes the name of a field as the flag that sets it."""
    return "--" + name.replace("_", "-")


def _plain(told: str, framed: str, args: Sequence[str]) -> str:
    """Says the same as a message of tyro without its internals."""
    if found := re.match(r"Unrecognized (?:or misplaced )?options: (\S+?),?(?: |$)", told):
        return _unknown(found[1], framed)
    if found := re.match(r"Missing from .*?: (--[\w.-]+)", told):
        return f"{found[1]} is required"
    if found := re.match(r"Expected one of \{(.*)\}", told):
        return f"a word is missing, one of {found[1]}"
    choice = r"invalid choice (.*) for argument '(.*)'\. Expected one of \((.*)\)"
    if found := re.match(choice, told):
        choices = re.sub(r"\bNone, ", "", found[3].replace("'", "").rstrip(","))
        return f"{found[2]} {found[1]} is not one of {choices}"
    if found := re.match(r"Missing value for argument '(.*)'\.", told):
        return f"{found[1]} needs a value"
    if found := re.match(r"Error parsing (--\S+): (.*)", told):
        return f"{found[1]}: {_number(found[2])}"
    if found := re.match(r"Error parsing ([\w.]+): (.*)", told):
        return _of_group(found[1], found[2], args)
    return told


def _unknown(word: str, framed: str) -> str:
    """A word that is no option, and what it may have been meant to be."""
    kinds = re.search(r"Available subcommands: (.*)", framed)
    if not word.startswith("-"):
        kind = kinds[1].strip("│ ").split(", ") if kinds else []
        if kind and ":" not in kind[0]:
            return f"{word!r} is not one of {', '.join(kind)}"
        return f"there is one argument too many, {word!r}"
    options = re.findall(r"^\W*(--\w[\w.-]*)", framed, re.MULTILINE)
    near = difflib.get_close_matches(word, options, n=1)
    near += [option for option in options if option.endswith(f".{word.lstrip('-')}")]
    return f"there is no option {word}" + (f"; did you mean {near[0]}?" if near else "")


def _number(told: str) -> str:
    if found := re.match(r"invalid literal for int\(\) with base 10: (.*)", told):
        return f"{found[1]} is not a whole number"
    if found := re.match(r"could not convert string to float: (.*)", told):
        return f"{found[1]} is not a number"
    return told


def _of_group(group: str, told: str, args: Sequence[str]) -> str:
    """What a group of options refuses: the flag of it that was given and that the message names."""
    for argument in args:
        flag = argument.partition("=")[0]
        name = flag.rpartition(".")[2].replace("-", "_")
        if flag.startswith("--") and re.match(rf"{name}\b", told):
            return flag + told.removeprefix(name)
    return re.sub(r"(?<![\w./'-])(?:data|optimizer|run)\.\w+", lambda x: as_flag(x[0]), told)


def _first_part(framed: str) -> str:
    """Extracts the message from tyro's framed error: the text between the title and the rule."""
    lines = [line.strip("│ ") for line in framed.splitlines()[1:]]
    parts = itertools.groupby(lines, lambda line: bool(line) and not set(line) <= set("─-╰╯"))
    told = next((" ".join(part) for is_text, part in parts if is_text), "invalid arguments")
    return told.rstrip(".")
