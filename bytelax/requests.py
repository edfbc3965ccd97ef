"""Checks of what a request for text generation is made of."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from bytelax import vocab


def arrays(draft_params: Any) -> Any:
    """Returns parameters of a drafter; raises ValueError if a leaf is no array."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(draft_params):
        if not isinstance(leaf, jax.Array | np.ndarray | np.number):
            place = f"draft_params{jax.tree_util.keystr(path)}"
            raise ValueError(f"{place} is not an array but of type {type(leaf).__name__}")
    return draft_params


def strings(name: str, strings: Iterable[bytes | str]) -> Iterable[bytes | str]:
    """Returns a list of strings; raises ValueError for a single one, which would be iterated."""
    if isinstance(strings, bytes | str):
        raise ValueError(f"{name} must be a list of strings, not one string: [{strings!r}]")
    return strings


def as_bytes(text: bytes | str) -> bytes:
    """Returns bytes as they are, and text as UTF-8; raises ValueError for anything else."""
    if not isinstance(text, str | bytes | bytearray):
        raise ValueError(f"texts, prompts and stop strings are bytes or text, got {text!r}")
    return text.encode("utf-8") if isinstance(text, str) else bytes(text)


def encode(prompt: bytes | str) -> list[int]:
    """Returns the ids of a prompt behind a BOS; raises ValueError if it is empty."""
    prompt = as_bytes(prompt)
    if not prompt:
        raise ValueError("a prompt must hold at least one byte")
    return vocab.encode(prompt)


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
