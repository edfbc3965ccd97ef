"""How annotations are checked in the tests: as written, and an int is a float.

jaxtyping's hook calls `check` on each function and class. By itself it would look at arguments
twice, and add checks to inner functions without annotations whenever their outer one runs.
"""

import dataclasses
import inspect

import jaxtyping
from beartype import BeartypeConf, beartype

_typed = beartype(conf=BeartypeConf(is_pep484_tower=True))
_sized = jaxtyping.jaxtyped(typechecker=None)  # a dimension's name has one size in a call


def check(part):
    """Adds the checks to a function with annotations, or to how a dataclass is made."""
    if part.__module__.startswith("bytelax.options"):
        return part  # the options of named methods check themselves, for users
    if not inspect.isclass(part):
        return _sized(_typed(part)) if part.__annotations__ else part
    unchecked = getattr(part, "__no_type_check__", False)
    if dataclasses.is_dataclass(part) and "__init__" in vars(part) and not unchecked:
        part.__init__ = check(part.__init__)
    return part


def install() -> None:
    """Leaves to `check` all that the hook adds to what is imported from now on."""
    jaxtyping.jaxtyped = lambda *, typechecker: typechecker
