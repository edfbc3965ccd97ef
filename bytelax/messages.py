"""What is told, in one line."""

import contextlib
import logging
from collections.abc import Iterator


def one_line(error: BaseException) -> str:
    """The first line of an error that says something, or the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


@contextlib.contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Silences a library whose failures are told by exceptions as well."""
    found = logging.getLogger(logger)
    before = found.level
    found.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        found.setLevel(before)
