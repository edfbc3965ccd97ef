"""Constraints on what is written: automata over bytes, which a method steps through."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from bytelax import vocab
from bytelax.models.pytree import pytree


@pytree
class Automaton:
    """A deterministic automaton over bytes: which byte may follow, and where a text may end.

    Every state leads to an accepting one, so there are no dead ends. Build one with `Automaton.of`,
    or with `bytelax.constraints`.

    Attributes:
      following: the state after each id in each state; -1 if the id may not follow. EOS may follow
        where a text may end, and changes no state.
      complete: states in which no byte may follow.
      start: the state before the first byte.
    """

    following: Int[Array, "S 260"]
    complete: Bool[Array, " S"]
    start: Int[Array, ""]

    @classmethod
    def of(
        cls, following: Int[np.ndarray, "S 256"], accepting: Iterable[int], start: int = 0
    ) -> "Automaton":
        """Creates an automaton without the states from which no text can end.

        The number of states is an array shape. It is rounded up to a power of two, so that few
        programs are compiled.

        Args:
          following: the state after each byte; -1 if it may not follow.
          accepting: states in which a text may end.
          start: the state before the first byte.

        Raises:
          ValueError: no text can end at all, or a state is out of range or not a number.
        """
        following = np.asarray(following)
        if following.shape[1:] != (vocab.BYTES,) or not np.issubdtype(following.dtype, np.integer):
            raise ValueError(f"a table is i32[states, 256], got {following.dtype}{following.shape}")
        size, ends = len(following), {*accepting}
        if any(isinstance(state, bool | np.bool_) for state in (*ends, start)):
            raise ValueError("states are numbers, not a mask: take those of numpy.flatnonzero")
        if not {*ends, start} <= {*range(size)} or not (following < size).all():
            raise ValueError(f"states are 0..{size - 1}")
        after = [{*row[row >= 0].tolist()} for row in following]
        before: list[set[int]] = [set() for _ in after]
        for state, others in enumerate(after):
            for other in others:
                before[other].add(state)
        kept = sorted(_reached({start}, after) & _reached(ends, before))
        if start not in kept:
            raise ValueError("no text satisfies the constraint")
        rows = max(_FEWEST, 1 << (len(kept) - 1).bit_length())
        number = np.full(size + 1, -1)  # -1 indexes the last one
        number[kept] = np.arange(len(kept))
        table = np.full((rows, vocab.SIZE), -1, np.int32)
        table[: len(kept), vocab.OFFSET :] = number[
            np.where(following[kept] < 0, size, following[kept])
        ]
        complete = (table < 0).all(1) & (np.arange(rows) < len(kept))
        own = number[sorted(ends & {*kept})]
        table[own, vocab.EOS] = own
        return cls(*jax.device_put((table, complete, np.int32(number[start]))))

    def walk(
        self,
        state: Int[Array, " B"],
        ids: Int[Array, "B K"],
        parents: Int[Array, "B K"] | None = None,
    ) -> Int[Array, "B K+1"]:
        """Returns the state before the ids, and after each of them; -1 from a forbidden one on.

        Args:
          state: before the ids.
          ids: bytes and EOS, which changes no state.
          parents: of a tree, as in `Draft.parents`.
        """
        states = state[:, None]
        for place in range(ids.shape[1]):
            above = states[:, -1:]
            if parents is not None:
                above = jnp.take_along_axis(states, parents[:, place : place + 1], axis=1)
            after = self.following[above, ids[:, place : place + 1]]
            states = jnp.concatenate([states, jnp.where(above < 0, -1, after)], 1)
        return states

    def allowed(self, states: Int[Array, "B W"], size: int) -> Bool[Array, "B W {size}"]:
        """Returns which of `size` ids may follow in each state; those of -1 are never read."""
        known = self.following[states][..., :size] >= 0
        return jnp.pad(known, ((0, 0), (0, 0), (0, max(size - vocab.SIZE, 0))))


_FEWEST = 16  # states


def _reached(begin: set[int], after: list[set[int]]) -> set[int]:
    """The states that are reached from some, themselves among them."""
    seen, todo = set(begin), list(begin)
    while todo:
        new = after[todo.pop()] - seen
        seen |= new
        todo += new
    return seen
