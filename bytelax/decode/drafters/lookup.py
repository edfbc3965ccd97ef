"""Prompt lookup: copy what followed the last time the text ended like this."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from bytelax.decode.draft import certain
from bytelax.decode.target import Text


@dataclasses.dataclass(frozen=True)
class Lookup:
    """Proposes the bytes behind the latest earlier place whose last bytes are those of the text.

    The idea is prompt lookup's; its n-grams count tokens, these count bytes. A place with a longer
    match comes first, and among equals the latest. Nothing found, nothing proposed.

    Attributes:
      draft_length: K, bytes copied.
      shortest: fewest bytes that have to match.
      longest: bytes beyond which a match is no better.
    """

    draft_length: int
    shortest: int = 4
    longest: int = 16

    text_only = True

    def __post_init__(self):
        if self.draft_length < 1:
            raise ValueError(f"a lookup must copy at least 1 byte, got {self.draft_length}")
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"a match must have at least 1 byte, and shortest {self.shortest} must not exceed "
                f"longest {self.longest}"
            )

    def init(self, inputs):
        return ()

    def propose(self, inputs, draft_state):
        text = inputs.text
        size = text.ids.shape[1]
        matched = matches(text, self.longest)
        # The latest of the longest matches.
        place = jnp.arange(size)
        place = jnp.argmax(matched * size + place, axis=1)
        found = jnp.take_along_axis(matched, place[:, None], axis=1)[:, 0] >= self.shortest
        # At the end of the text the copy goes on with its own first byte: that is what lookup would
        # propose next, had these bytes been accepted. So a run of one byte fills the draft.
        period = jnp.maximum(text.length - place, 1)
        source = place[:, None] + jnp.arange(self.draft_length) % period[:, None]
        ids = jnp.take_along_axis(text.ids, source, axis=1, mode="clip")
        length = jnp.where(found, self.draft_length, 0)
        return certain(ids, length=length), draft_state

    def commit(self, inputs, draft_state, trial, count):
        return draft_state


def matches(text: Text, longest: int) -> Int[Array, "B L"]:
    """How many ids before each place are those before the end of the text, at most `longest`.

    Zero at the end of the text and beyond.
    """
    size = text.ids.shape[1]
    place = jnp.arange(size)
    same = place < text.length[:, None]
    count = jnp.zeros(text.ids.shape, jnp.int32)
    for back in range(1, longest + 1):
        last = jnp.take_along_axis(text.ids, text.length[:, None] - back, axis=1, mode="clip")
        before = jnp.pad(text.ids, ((0, 0), (back, 0)))[:, :size]
        same &= (before == last) & (place >= back)
        count += same
    return count
