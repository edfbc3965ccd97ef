"""The options of the named methods, as annotated types for signatures, help and documentation."""

import inspect
import types
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

import numpy as np

from bytelax.decode.unmasking import Unmask
from bytelax.model import Model


class Option(NamedTuple):
    """What the command line and the documentation say about an option.

    Attributes:
      help: description of the option.
      choices: allowed words; empty if any value of the type is allowed.
    """

    help: str
    choices: tuple[str, ...] = ()


def option_of(parameter: inspect.Parameter) -> Option:
    """Returns the `Option` in the annotation of a factory's parameter."""
    return parameter.annotation.__metadata__[-1]


def fits(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether a value has the type of a factory's parameter. Integers must fit into 32 bits."""
    return _is(value, get_args(parameter.annotation)[0])


def _is(value, kind):
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        return any(_is(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple | list) and all(_is(x, parts[0]) for x in value)
    if isinstance(value, bool):
        return kind is bool
    if kind is int:
        return isinstance(value, int | np.integer) and -(2**31) <= value < 2**31
    if kind is float:
        return isinstance(value, int | float | np.number)
    return isinstance(value, kind) if isinstance(kind, type) else callable(value)


Words = tuple[int, ...]
DraftLength = Annotated[int, Option("Number of bytes drafted in each round.")]
BlockLength = Annotated[
    int | None, Option("Number of bytes drafted in each round; by default a whole block.")
]
BlockSize = Annotated[int, Option("Number of bytes in a block.")]
MinSurvival = Annotated[
    float | None,
    Option(
        "End a draft before the first byte that is kept with a probability below this. A trained "
        "confidence head predicts it before the byte is drawn; without one, the drafter's largest "
        "probability stands in."
    ),
]
Table = Annotated[
    bool | None,
    Option(
        "Sample the block from left to right through the model's block table; by default if it "
        "has one and the rule is one-step."
    ),
]
DraftWith = Annotated[str, Option("What drafts for the local decoder.", ("lookup", "medusa"))]
Synchronous = Annotated[
    float,
    Option(
        "Share of a BLT's rows that must have closed a patch before the global transformer runs "
        "for all of them at once. Rows that are ready wait; the output stays the same."
    ),
]
Latent = Annotated[
    str,
    Option(
        "Draft with the latest latent there is (reuse), or first bring it up to date by a second "
        "pass (refresh).",
        ("reuse", "refresh"),
    ),
]
UnmaskBy = Annotated[
    str | Unmask,
    Option(
        "Rule for which masked bytes of a block to fill in each pass.",
        ("confidence", "entropy", "entropy-minus-max", "one-step"),
    ),
]
Alpha = Annotated[
    float | None, Option("For confidence: fill in bytes whose probability is above this.")
]
Gamma = Annotated[
    float | None, Option("For entropy: fill in bytes whose entropies sum to at most this, in nats.")
]
SmallModel = Annotated[
    Model | str | Path, Option("The small model that drafts, named as in --model.")
]
Drafts = Annotated[int, Option("Number of drafts to choose from.")]
ExitLayer = Annotated[
    int | None,
    Option("Number of layers to draft with; by default half of them, or to the nearest exit head."),
]
ExitHead = Annotated[
    bool | None, Option("Use the exit's own output layer; by default if it has one.")
]
VerifyFrom = Annotated[
    str | None,
    Option(
        "Continue verification from the states at the exit, or compute all layers again; by "
        "default the former in float32 and the latter in narrower dtypes.",
        ("exit", "embedding"),
    ),
]
SkipAttention = Annotated[
    Words | None, Option("Indices of the blocks whose attention is skipped, from 0.")
]
SkipMlp = Annotated[Words | None, Option("Indices of the blocks whose SwiGLU is skipped, from 0.")]
Branches = Annotated[
    Words | None, Option("Number of children of a node at each level; the draft is then a tree.")
]
Nodes = Annotated[int, Option("Number of nodes of the tree to verify.")]
Beam = Annotated[
    int, Option("Number of nodes to expand at each level; above 1 the draft is a tree.")
]
StateLayer = Annotated[
    int | None, Option("Depth of the hidden state to read; the last by default.")
]
