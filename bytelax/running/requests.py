"""Checks requests for text generation."""

import operator
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from bytelax import vocab
from bytelax.compiling import own_settings
from bytelax.decode.constraint import Automaton

# A string or strings that end every row, or one list of them for each prompt.
Stop = bytes | str | Sequence[bytes | str] | Sequence[Sequence[bytes | str]]
# A number for each row, one from which they count on, or a key of JAX that draws them.
Seeds = int | np.integer | Sequence[int] | Key[Array, ""]


class Request(NamedTuple):
    """A prompt that waits for its row.

    Attributes:
      index: index of the prompt among those given.
      ids: a BOS and the prompt.
      seed: seed of the row.
      further: seeds of further rows that continue the same prompt.
    """

    index: int  # type: ignore[assignment]  # hides `tuple.index`
    ids: list[int]
    seed: int
    further: tuple[int, ...] = ()


def all_of(
    prompts: bytes | str | Iterable[bytes | str], seeds: Seeds, samples: int = 1
) -> list[Request]:
    """Returns the requests of a batch of prompts.

    Args:
      prompts: bytes or text.
      seeds: as in `row_seeds`, for all rows.
      samples: number of rows that continue each prompt.

    Raises:
      ValueError: there is no prompt, one is neither bytes nor text, `samples` is below 1,
        or the seeds do not fit.
    """
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 1:
        raise ValueError(f"samples must be a number from 1, got {samples!r}")
    strings = vocab.strings("prompts", prompts)
    ids = [vocab.encode(prompt) for prompt in strings]
    if not ids:
        raise ValueError("there is no prompt to continue")
    numbers = row_seeds(seeds, len(ids) * samples).reshape(len(ids), samples).tolist()
    return [
        Request(index, own, seed, tuple(further))
        for index, (own, (seed, *further)) in enumerate(zip(ids, numbers, strict=True))
    ]


def budgets(most: int | Sequence[int], prompts: int) -> np.ndarray:
    """Returns the maximum number of bytes of each prompt, i64[prompts], or of all, i64[1].

    Raises:
      ValueError: one is below 1, or there is not one for each prompt.
    """
    values = np.asarray(most)
    if values.dtype.kind != "i" or values.shape not in ((), (prompts,)) or (values < 1).any():
        or_many = f", or one for each of the {prompts} prompts;" if prompts > 1 else ","
        raise ValueError(f"max_new_bytes must be a number from 1{or_many} got {most!r}")
    return values.reshape(-1).astype(np.int64)  # whether it exceeds the context is checked later


def stops(stop: Stop, prompts: int) -> tuple[tuple[bytes, ...], ...]:
    """Returns the stop strings of each prompt, or those of all as a single tuple.

    Raises:
      ValueError: they are not strings, or there is not one list for each prompt.
    """
    given = list(vocab.strings("stop", stop))
    if not given or any(isinstance(one, str | bytes | bytearray) for one in given):
        return (tuple(map(vocab.as_bytes, given)),)
    if len(given) != prompts:
        raise ValueError(f"{len(given)} lists of stop strings for {prompts} prompts")
    return tuple(tuple(map(vocab.as_bytes, vocab.strings("stop", own))) for own in given)


def automaton(constraint: Any) -> Automaton:
    """Returns a constraint; raises ValueError for anything else, such as a pattern."""
    if not isinstance(constraint, Automaton):
        got = reprlib.repr(constraint)
        raise ValueError(f"a constraint comes from bytelax.constraints, got {got}")
    return constraint


def arrays(draft_params: Any) -> Any:
    """Returns parameters of a drafter; raises ValueError if a leaf is not an array."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(draft_params):
        if not isinstance(leaf, jax.Array | np.ndarray | np.number):
            place = f"draft_params{jax.tree_util.keystr(path)}"
            raise ValueError(f"{place} is not an array but of type {type(leaf).__name__}")
    return draft_params


def row_seeds(seeds: Seeds, rows: int) -> np.ndarray:
    """Returns one seed per row, uint32; a number counts on from there, and a key draws them.

    Raises:
      ValueError: there is not one seed for each row, or one is out of range.
    """
    if isinstance(seeds, jax.Array) and _is_key(seeds):
        with own_settings():
            return np.asarray(jax.random.bits(seeds, (rows,), "uint32"))
    if isinstance(seeds, int | np.integer):
        seeds = range(int(seeds), int(seeds) + rows)
    try:
        seeds = [operator.index(seed) for seed in seeds]
    except TypeError:
        got = reprlib.repr(seeds)
        raise ValueError(f"seeds are whole numbers, one of them, or a key; got {got}") from None
    if len(seeds) != rows:
        raise ValueError(f"{len(seeds)} seeds for {rows} prompts; give one each, or one number")
    if any(not 0 <= seed < 1 << 32 for seed in seeds):
        raise ValueError("seeds must lie in 0..2**32 - 1")
    return np.array(seeds, np.uint32)


def _is_key(x: jax.Array) -> bool:
    """Whether this is a single typed key."""
    return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) and not x.shape
