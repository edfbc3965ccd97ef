"""When a row ends: EOS, a stop string, its byte budget, a constraint, or broken logits."""

import numbers
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from bytelax import vocab
from bytelax.decode.target import Text
from bytelax.models.pytree import pytree

RUNNING, BY_EOS, BY_STOP, BY_LENGTH, NOT_FINITE, BY_CONSTRAINT = range(6)
REASONS = ("running", "eos", "stop", "length", "not-finite", "constraint")


@pytree
class Stops:
    """The stop strings of every row, padded on the left. Build them with `Stops.of`."""

    ids: Int[Array, "B N M"]  # B is 1 if all rows share them
    length: Int[Array, "B N"]

    @classmethod
    def of(cls, strings: Sequence[Any] | np.ndarray) -> "Stops":
        """Creates stop strings; a row ends as soon as its output contains one of its own.

        They are bytes, text, or sequences of ids of a target with another vocabulary.

        The number of strings and their length are array shapes. Both are rounded up to a power of
        two, so that few programs are compiled.

        Args:
          strings: those of all rows, or one sequence of them for each row.

        Raises:
          ValueError: a single string stands for a list, or a stop string is empty, or neither
            bytes, text nor ids.
        """
        if isinstance(strings, bytes | bytearray | str):
            raise ValueError(f"strings must be a list of strings, not one string: [{strings!r}]")
        shared = len(strings) == 0 or any(map(_is_string, strings))
        rows = [[*map(_ids, own)] for own in ([strings] if shared else strings)]
        longest = _round_up(max((len(string) for own in rows for string in own), default=0))
        many = _round_up(max(map(len, rows)))
        ids = np.full((len(rows), many, longest), -1, np.int32)
        length = np.zeros((len(rows), many), np.int32)
        for row, own in enumerate(rows):
            for nth, string in enumerate(own):
                length[row, nth] = len(string)
                ids[row, nth, longest - len(string) :] = string
        return cls(jax.device_put(ids), jax.device_put(length))

    def for_rows(self, batch: int) -> "Stops":
        """Broadcasts the stop strings along the batch axis to `batch` rows."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape[1:])), self)


def trim(
    text: Text,
    emitted: Int[Array, "B E"],
    count: Int[Array, " B"],
    *,
    prompt: Int[Array, " B"],
    limit: Int[Array, " B"],
    stops: Stops,
    complete: Bool[Array, "B E"] | None = None,
    eos: int | None = vocab.EOS,
) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
    """Returns how many emitted ids to keep, and why each row ends there (RUNNING if it does not).

    Args:
      text: the text before the emitted ids.
      emitted: ids to append.
      count: number of emitted ids; 0 in rows that had already ended.
      prompt: length of each prompt; stop strings are only searched for in the output.
      limit: text length at which the row's budget is used up.
      stops: stop strings.
      complete: whether the constraint lets nothing follow an id; None without a constraint.
      eos: id that ends a row; None if none does.

    Returns:
      The number of ids to keep, and one of RUNNING, BY_EOS, BY_STOP, BY_CONSTRAINT and BY_LENGTH.
    """
    width = emitted.shape[1]
    place = jnp.arange(width)
    there = place < count[:, None]
    end = {
        BY_EOS: there & (emitted == (-1 if eos is None else eos)),
        BY_STOP: there & _matches(text, emitted, prompt, stops),
        BY_CONSTRAINT: there & (False if complete is None else complete),
        BY_LENGTH: there & (text.length[:, None] + place + 1 >= limit[:, None]),
    }
    reason = jnp.select([*end.values()], [*end])
    ended = reason != RUNNING
    first = jnp.where(ended.any(1), ended.argmax(1), width - 1)
    count = jnp.minimum(count, first + 1)
    return count, jnp.take_along_axis(reason, first[:, None], axis=1)[:, 0]


def _matches(text, emitted, prompt, stops):
    """Returns bool[B, E]: whether the output up to and with this id ends in a stop string."""
    longest = stops.ids.shape[2]
    if longest == 0:
        return jnp.zeros(emitted.shape, bool)
    # Join the last `longest - 1` ids of the output to the emitted ones, so that every emitted id
    # is the end of a run of `longest` ids.
    back = text.length[:, None] - longest + 1 + jnp.arange(longest - 1)
    tail = jnp.take_along_axis(text.ids, jnp.maximum(back, 0), axis=1)
    tail = jnp.where(back >= prompt[:, None], tail, -1)
    runs = _runs(jnp.concatenate([tail, emitted], axis=1), longest)
    padding = jnp.arange(longest) < longest - stops.length[..., None]
    same = (runs[:, :, None] == stops.ids[:, None]) | padding[:, None]
    return (same.all(-1) & (stops.length > 0)[:, None]).any(-1)


def _runs(ids: Int[Array, "B R"], size: int) -> Int[Array, "B E {size}"]:
    """Returns all E = R - size + 1 runs of `size` ids, in the same few operations for any size.

    If the ids are repeated endlessly and cut into rows of R + 1, each row begins one id later.
    """
    batch, many = ids.shape
    count = many - size + 1
    repeated = jnp.tile(ids, (1, count + 1))[:, : count * (many + 1)]
    return repeated.reshape(batch, count, many + 1)[:, :, :size]


def _is_string(value) -> bool:
    """Whether this is one string of bytes or ids, and not a list of strings."""
    if isinstance(value, bytes | bytearray | str | numbers.Integral):
        return True  # a number is refused as a string
    return len(value) > 0 and isinstance(value[0], numbers.Integral)


def _ids(string) -> list[int]:
    """The ids of a stop string."""
    if isinstance(string, bytes | bytearray | str):
        string = vocab.encode(string, bos=False)
    try:
        ids = [*map(operator.index, string)]
    except TypeError:
        raise ValueError(f"a stop string is bytes, text or ids, got {string!r}") from None
    if not ids:
        raise ValueError("a stop string must not be empty")
    return ids


def _round_up(n: int) -> int:
    return 0 if n == 0 else 1 << (n - 1).bit_length()
