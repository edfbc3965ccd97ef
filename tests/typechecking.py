"""How annotations are checked in the tests: as written, and an int is a float."""

from beartype import BeartypeConf, beartype

_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function):
    """Adds the checks to a function; the options of named methods check themselves, for users."""
    own = function.__module__.startswith("bytelax.options")
    return function if own else _checked(function)
