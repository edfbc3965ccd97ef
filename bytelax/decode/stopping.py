"""When a row ends: EOS, a stop string, or its byte budget."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bytelax import vocab
from bytelax.decode.target import Text
from bytelax.pytree import pytree

RUNNING, BY_EOS, BY_STOP, BY_LENGTH = range(4)
REASONS = ("running", "eos", "stop", "length")


@pytree
class Stops:
    """Stop strings of each row, padded on the left. Build them with `Stops.of`."""

    ids: Int[Array, "B N M"]  # B is 1 where all rows have the same ones
    length: Int[Array, "B N"]

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> "Stops":
        """Every row ends with the first of `strings` that its output contains.

        Their number and length are shapes, rounded up so that few programs are compiled.

        Raises:
          ValueError: an empty stop string.
        """
        if not all(strings):
            raise ValueError("a stop string must not be empty")
        longest = _round_up(max(map(len, strings), default=0))
        ids = np.full((_round_up(len(strings)), longest), -1, np.int32)
        length = np.zeros(len(ids), np.int32)
        for row, string in enumerate(strings):
            length[row] = len(string)
            ids[row, longest - len(string) :] = vocab.encode(string, bos=False)
        return cls(jnp.asarray(ids)[None], jnp.asarray(length)[None])

    def for_rows(self, batch: int) -> "Stops":
        """The same for `batch` rows, with the batch as leading axis."""
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape[1:])), self)


def trim(
    text: Text,
    emitted: Int[Array, "B E"],
    count: Int[Array, " B"],
    *,
    prompt: Int[Array, " B"],
    limit: Int[Array, " B"],
    stops: Stops,
) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
    """Number of emitted ids to keep, and why the row ends with them (RUNNING if it does not).

    Args:
      text: before the emitted ids.
      emitted: ids to be appended.
      count: how many of them, 0 in rows that ended before.
      prompt: length of each prompt; a stop string is looked for in the output alone.
      limit: text length at which the row's budget is used up.
      stops: stop strings.
    """
    width = emitted.shape[1]
    place = jnp.arange(width)
    there = place < count[:, None]
    end = {
        BY_EOS: there & (emitted == vocab.EOS),
        BY_STOP: there & _matches(text, emitted, prompt, stops),
        BY_LENGTH: there & (text.length[:, None] + place + 1 >= limit[:, None]),
    }
    reason = jnp.select([end[BY_EOS], end[BY_STOP], end[BY_LENGTH]], [BY_EOS, BY_STOP, BY_LENGTH])
    ended = reason != RUNNING
    first = jnp.where(ended.any(1), ended.argmax(1), width - 1)
    count = jnp.minimum(count, first + 1)
    return count, jnp.take_along_axis(reason, first[:, None], axis=1)[:, 0]


def _matches(text, emitted, prompt, stops):
    """bool[B, E]: the output up to and including this id ends with a stop string."""
    longest = stops.ids.shape[2]
    if longest == 0:
        return jnp.zeros(emitted.shape, bool)
    # The last `longest - 1` ids of the text and the emitted ones, then a window ending at each.
    back = text.length[:, None] - longest + 1 + jnp.arange(longest - 1)
    tail = jnp.take_along_axis(text.ids, jnp.maximum(back, 0), axis=1)
    tail = jnp.where(back >= prompt[:, None], tail, -1)
    recent = jnp.concatenate([tail, emitted], axis=1)
    windows = jnp.stack([recent[:, i : i + emitted.shape[1]] for i in range(longest)], axis=-1)
    padding = jnp.arange(longest) < longest - stops.length[..., None]
    same = (windows[:, :, None] == stops.ids[:, None]) | padding[:, None]
    return (same.all(-1) & (stops.length > 0)[:, None]).any(-1)


def _round_up(n: int) -> int:
    return 0 if n == 0 else 1 << (n - 1).bit_length()
