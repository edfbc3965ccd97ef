"""Checks of what a request for text generation is made of."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bytelax import vocab


class Request(NamedTuple):
    """A prompt that waits for its row.

    Attributes:
      index: index of the prompt among those given.
      ids: the prompt behind a BOS.
      seed: seed of the row.
    """

    index: int  # type: ignore[assignment]  # hides `tuple.index`
    ids: list[int]
    seed: int


def all_of(
    prompts: Iterable[bytes | str], seeds: int | np.integer | Sequence[int]
) -> list[Request]:
    """Returns the requests of a batch of prompts.

    Args:
      prompts: bytes or text.
      seeds: as in `row_seeds`.

    Raises:
      ValueError: there is no prompt, one is neither bytes nor text, or the seeds do not fit.
    """
    ids = [encode(prompt) for prompt in vocab.strings("prompts", prompts)]
    if not ids:
        raise ValueError("there is no prompt to continue")
    numbers = row_seeds(seeds, len(ids)).tolist()
    return [Request(index, *own) for index, own in enumerate(zip(ids, numbers, strict=True))]


def arrays(draft_params: Any) -> Any:
    """Returns parameters of a drafter; raises ValueError if a leaf is no array."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(draft_params):
        if not isinstance(leaf, jax.Array | np.ndarray | np.number):
            place = f"draft_params{jax.tree_util.keystr(path)}"
            raise ValueError(f"{place} is not an array but of type {type(leaf).__name__}")
    return draft_params


def encode(prompt: bytes | str) -> list[int]:
    """Returns the ids of a prompt behind a BOS, which is all there is of an empty one."""
    return vocab.encode(vocab.as_bytes(prompt))


def row_seeds(seeds: int | np.integer | Sequence[int], rows: int) -> np.ndarray:
    """Returns one seed per row, uint32; a single number counts on from there.

    Raises:
      ValueError: there are not as many seeds as rows, or they are out of range.
    """
    if isinstance(seeds, int | np.integer):
        seeds = range(int(seeds), int(seeds) + rows)
    try:
        seeds = [operator.index(seed) for seed in seeds]
    except TypeError:
        raise ValueError(f"seeds are whole numbers, or one of them; got {seeds!r}") from None
    if len(seeds) != rows:
        raise ValueError(f"{len(seeds)} seeds for {rows} prompts; give one each, or one number")
    if any(not 0 <= seed < 1 << 32 for seed in seeds):
        raise ValueError("seeds must lie in 0..2**32 - 1")
    return np.array(seeds, np.uint32)
