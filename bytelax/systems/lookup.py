"""Prompt lookup: copies what followed an earlier occurrence of the text's last bytes."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Int

from bytelax.decode.draft import certain
from bytelax.decode.drafter import Drafter
from bytelax.decode.method import Method
from bytelax.decode.target import Text
from bytelax.options import Lookup
from bytelax.systems.fitting import Model, checked_length

_LONGEST = 256  # bytes of a match, which a program compares one by one


@dataclasses.dataclass(frozen=True)
class LookupDrafter(Drafter):
    """Proposes the bytes that followed an earlier occurrence of the text's last bytes.

    Prompt lookup decoding, on bytes in place of tokens. The longest match wins, and among equally
    long ones the latest. Without a match of at least `shortest` bytes nothing is proposed.

    Attributes:
      draft_length: K, number of bytes copied.
      shortest: minimum length of a match, in bytes.
      longest: length beyond which a longer match is not preferred, in bytes.
    """

    draft_length: int
    shortest: int = 4
    longest: int = 16

    def __post_init__(self):
        if self.draft_length < 1:
            raise ValueError(f"a lookup must copy at least 1 byte, got {self.draft_length}")
        if not 1 <= self.shortest <= self.longest <= _LONGEST:
            raise ValueError(
                f"a match has 1..{_LONGEST} bytes, and shortest {self.shortest} must not exceed "
                f"longest {self.longest}"
            )

    def propose(self, inputs, draft_state):
        text = inputs.text
        size = text.ids.shape[1]
        matched = matches(text, self.longest)
        # The latest of the longest matches.
        place = jnp.arange(size)
        place = jnp.argmax(matched * size + place, axis=1)
        found = jnp.take_along_axis(matched, place[:, None], axis=1)[:, 0] >= self.shortest
        # A copy that reaches the end of the text starts over with its own first byte: lookup would
        # propose that next if these bytes were accepted. So a run of one byte fills the draft.
        period = jnp.maximum(text.length - place, 1)
        source = place[:, None] + jnp.arange(self.draft_length) % period[:, None]
        ids = jnp.take_along_axis(text.ids, source, axis=1, mode="clip")
        length = jnp.where(found, self.draft_length, 0)
        return certain(ids, length=length), draft_state


def matches(text: Text, longest: int) -> Int[Array, "B L"]:
    """Counts how many ids before each position equal those before the end of the text.

    The count is at most `longest`, and 0 from the end of the text on.
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


def build(options: Lookup, model: Model) -> Method:
    """Returns the method that its options describe."""
    return Method(model.target(), LookupDrafter(checked_length(options.draft_length, model)))
