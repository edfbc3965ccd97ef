"""Errors as one line."""


def one_line(error: BaseException) -> str:
    """The first line of an error that says something, or the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)
