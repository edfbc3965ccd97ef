"""The Target contract: a language model that can take back what was rejected."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.pytree import pytree

State = Any  # a pytree of arrays with a leading batch axis, the target's own
Trial = Any


@pytree
class Text:
    """What the loop owns: prompt and output, right-padded, BOS first.

    The last byte of each row is pending: emitted, but not yet seen by the target.
    """

    ids: Int[Array, "B L"]
    length: Int[Array, " B"]  # at least 1

    @property
    def pending(self) -> Int[Array, "B 1"]:
        return jnp.take_along_axis(self.ids, self.length[:, None] - 1, axis=1)

    @classmethod
    def of(cls, prompts: Sequence[bytes], *, length: int) -> "Text":
        """Prompts in buffers of `length` ids: room for a BOS, the prompt and what will follow."""
        ids = np.zeros((len(prompts), length), np.int32)
        for row, prompt in zip(ids, map(vocab.encode, prompts), strict=True):
            row[: len(prompt)] = prompt
        return cls(jnp.asarray(ids), jnp.asarray([1 + len(prompt) for prompt in prompts]))


@runtime_checkable
class Target(Protocol):
    """Pure functions over explicit state. The state may be donated.

    A target is hashable, for it is a static argument of compiled programs. One whose caches depend
    on the widest window that `extend` is given has a field `window`; None leaves it to `Method`.

    `extend` computes; what it computed counts only once `commit` has kept it, so a target never
    needs to undo. Rows are independent, and a row's result is bitwise the same whatever the other
    rows hold and wherever in a window its bytes stand, at one (B, W).
    """

    def prefill(self, params, text: Text) -> State:
        """Takes in all bytes but the pending one."""
        ...

    def extend(
        self,
        params,
        state: State,
        window: Int[Array, "B W"],
        *,
        running: Bool[Array, " B"] | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        """Next-byte logits after each byte of a window; `window[:, 0]` is the pending byte.

        Nothing of a row that is not `running` will be kept: its logits are never read, and work
        that only it needs may be left out.
        """
        ...

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> State:
        """Keeps the first `count` (0..W) window bytes of each row and forgets the rest."""
        ...

    def passes(self, state: State) -> dict[str, Int[Array, " B"]]:
        """Forward passes since the prefill, by network (`decoder_passes`, ...), and `patches`."""
        ...


@runtime_checkable
class Waiting(Target, Protocol):
    """A target whose rows may wait for one another, to share the expensive passes."""

    def waits(self, trial: Trial) -> Bool[Array, " B"]:
        """Rows whose window was not computed. Nothing of it may be kept; it will be tried again."""
        ...


@runtime_checkable
class Rewindable(Target, Protocol):
    """A target that can be rewound after it has run ahead of the text, as a draft model is."""

    def rewind(self, ahead: State, back: State) -> State:
        """Returns to the state `back`, in the buffers of `ahead`, so that nothing is copied.

        Args:
          ahead: what became of `back` by keeping fewer bytes than the target's window.
          back: the state to return to.
        """
        ...


@runtime_checkable
class Branching(Target, Protocol):
    """A target that takes trees: `extend` has a keyword `parents`, as in `Draft.parents`."""

    def along(self, trial: Trial, path: Int[Array, "B W"]) -> Trial:
        """Reorders a trial so that one branch of the tree comes first.

        Args:
          trial: of a tree.
          path: window places, the root's first; what stands beyond the branch is never kept.
        """
        ...


def check_window(window: Int[Array, "B W"], widest: int | None) -> None:
    """Raises ValueError for a window that is wider than the caches of a target allow.

    A ring of a stack with a sliding attention window would overwrite positions still in sight.
    """
    if widest is not None and window.shape[1] > widest:
        raise ValueError(
            f"a window of {window.shape[1]} bytes does not fit a target of width {widest}"
        )


def in_windows(target: Target, window: int) -> Target:
    """The target with caches for windows of `window` bytes.

    Raises:
      ValueError: its caches hold narrower ones.
    """
    held = getattr(target, "window", window)
    if held is None:
        return dataclasses.replace(target, window=window)
    if held < window:
        raise ValueError(f"the target's caches hold windows of {held} bytes, not of {window}")
    return target


def take_in(target: Target, params, state: State, text: Text, *, width: int) -> State:
    """Takes each row's text into an empty state, `width` bytes at a time, up to the pending byte.

    Rows whose prompt is shorter stand still; what their windows hold is never kept.
    """
    length = text.ids.shape[1]
    ids = jnp.pad(text.ids, ((0, 0), (0, -length % width)))
    todo = text.length - 1

    def step(carry):
        done, state = carry
        window = jax.lax.dynamic_slice_in_dim(ids, done, width, axis=1)
        _, trial = target.extend(params, state, window, running=done < todo)
        return done + width, target.commit(trial, jnp.clip(todo - done, 0, width))

    return jax.lax.while_loop(lambda carry: carry[0] < todo.max(), step, (0, state))[1]
