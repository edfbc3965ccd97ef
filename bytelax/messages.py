"""Error messages of one line, and silencing the logs of libraries."""

import contextlib
import logging
from collections.abc import Iterable, Iterator


def one_line(error: BaseException) -> str:
    """The first non-empty line of an error's message, or the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def meant(word: str, known: Iterable[str]) -> str:
    """Asks whether one of the known words was meant, the nearest one; empty if none is near."""
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else ""


@contextlib.contextmanager
def quiet(logger: str) -> Iterator[None]:
    """A context that silences a library's logger, if its failures raise exceptions as well."""
    found = logging.getLogger(logger)
    before = found.level
    found.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        found.setLevel(before)
