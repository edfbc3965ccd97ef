"""The base class of targets: a language model that can roll back the bytes that were rejected."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models.pytree import pytree
from bytelax.vocab import ALL_BYTES, Vocabulary

State = Any  # a pytree of arrays with a leading batch axis, opaque to the loop
Trial = Any


@pytree
class Text:
    """The prompts and outputs of a batch, right-padded, each beginning with BOS.

    The last byte of each row is pending: it was emitted, but the target has not processed it yet.
    """

    ids: Int[Array, "B L"]
    length: Int[Array, " B"]  # at least 1

    @property
    def pending(self) -> Int[Array, "B 1"]:
        """The last id of each row, which the target has not processed yet."""
        return jnp.take_along_axis(self.ids, self.length[:, None] - 1, axis=1)

    @classmethod
    def of(
        cls, prompts: Sequence[str | bytes | Sequence[int]], *, length: int, bos: bool = True
    ) -> "Text":
        """Encodes prompts into buffers of `length` ids, which must hold BOS, prompt and output.

        Without `bos` it encodes what `Method.append` appends to texts. A prompt may also be ids, of
        any vocabulary, to which nothing is added.

        Raises:
          ValueError: BOS and a prompt alone do not fit, or a single prompt stands for a list.
        """
        if isinstance(prompts, bytes | str):
            raise ValueError(f"prompts must be a list of strings, not one string: [{prompts!r}]")
        encoded = [
            vocab.encode(x, bos=bos) if isinstance(x, bytes | bytearray | str) else [*x]
            for x in prompts
        ]
        ids = np.zeros((len(prompts), length), np.int32)
        for row, prompt in zip(ids, encoded, strict=True):
            if len(prompt) > length:
                raise ValueError(f"BOS and a prompt are {len(prompt)} ids, in a buffer of {length}")
            row[: len(prompt)] = prompt
        lengths = np.array([*map(len, encoded)], np.int32)
        return cls(*jax.device_put((ids, lengths)))


class Target:
    """Base of language models that verify drafts: pure functions over explicit state.

    A target must be hashable, because it is a static argument of compiled programs. A subclass has
    `prefill`, `extend` and `commit`; the rest has a default.

    `extend` only computes. Nothing counts until `commit` keeps it, so a target never has to undo
    anything. Rows are independent: at one shape (B, W), the result for a row is bitwise the same,
    whatever the other rows hold and wherever in a window its bytes lie. The state may be donated.

    Attributes:
      vocabulary: the ids that may be emitted, and which one ends a text; a field of a dataclass or
        a property may take its place.
      model_kind: what errors call the kind of model; by default the name of the class.
      resumes: whether `prefill` takes a third argument, `state`, the state after a beginning of
        each text, and continues from there. `Method.append` needs that.
    """

    vocabulary: Vocabulary = ALL_BYTES
    model_kind: ClassVar[str] = ""
    resumes: ClassVar[bool] = False

    @property
    def vocab_size(self) -> int | None:
        """Number of ids that the model predicts; None if that is not known before."""
        return None

    @property
    def max_bytes(self) -> int | None:
        """Maximum length of a text, BOS included; None if there is no limit."""
        return None

    def prefill(self, params, text: Text) -> State:
        """Processes all bytes of the prompts except the pending one."""
        raise NotImplementedError(f"{type(self).__name__}.prefill")

    def extend(
        self,
        params,
        state: State,
        window: Int[Array, "B W"],
        *,
        most: Int[Array, " B"] | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        """Computes next-byte logits after each byte of a window, the first being the pending one.

        Args:
          params: parameters of the model.
          state: after all bytes before the window.
          window: ids of the window.
          most: number of bytes that `commit` may keep at most, 0 in a row that stands still. The
            logits after them are never read, so work that only they need may be left out. None
            is W everywhere.
        """
        raise NotImplementedError(f"{type(self).__name__}.extend")

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> State:
        """Keeps the first `count` (0..W) window bytes of each row and forgets the rest."""
        raise NotImplementedError(f"{type(self).__name__}.commit")

    def passes(self, state: State) -> dict[str, Int[Array, " B"]]:
        """Returns the number of forward passes since the prefill, by network, and of patches.

        The keys are `decoder_passes`, ... and `patches`. A key that is missing counts as zero.
        """
        return {}

    def in_windows(self, window: int) -> "Target":
        """Returns the target with caches for windows of `window` bytes.

        Raises:
          ValueError: the target was built with caches for narrower windows.
        """
        return self

    def bound(self, params: Any) -> Any:
        """Returns the model for drafters to run: a Flax module, bound to its parameters."""
        raise NotImplementedError(f"{type(self).__name__}.bound")

    def agreed(self, values: Any) -> Any:
        """Returns the integers of the first of the devices that hold parts of the same rows.

        Devices that add in a different order may round differently and so disagree. All of them
        take the decisions of the first, so that none leaves a loop before the others.
        """
        return values


class Windowed(Target):
    """Base of targets whose caches depend on the widest window that is passed to `extend`.

    A subclass is a frozen dataclass.

    Attributes:
      window: number of bytes of the widest window; None until `in_windows` sets it.
    """

    window: int | None

    def in_windows(self, window: int) -> "Windowed":
        """As `Target.in_windows`."""
        if self.window is None:
            return dataclasses.replace(self, window=window)  # type: ignore[type-var]
        if self.window < window:
            raise ValueError(
                f"the target's caches hold windows of {self.window} bytes, not of {window}"
            )
        return self


class Rewindable(Windowed):
    """Base of targets that can run ahead and go back, as a draft model does."""

    resumes = True

    def prefill(self, params, text: Text, state: State | None = None) -> State:
        """Processes the texts from the end of `state` on; see `Target.prefill`."""
        raise NotImplementedError(f"{type(self).__name__}.prefill")

    def place(self, state: State) -> Any:
        """Returns what `rewind` needs to return to a state, with a leading batch axis.

        By default it is the whole state. A target with caches, which running ahead only writes
        beyond, returns the rest of its state, since a draft model keeps one place per byte.
        """
        return state

    def rewind(self, ahead: State, place: Any) -> State:
        """Returns to an earlier state, in the buffers of `ahead`, so that nothing is copied.

        Args:
          ahead: a state reached by keeping fewer bytes after the earlier one than the target's
            window holds.
          place: what `place` returned for the earlier one.
        """
        return place


class Branching(Target):
    """Base of targets that verify trees: `extend` takes `parents`, as in `Draft.parents`."""

    model_kind = "a byte transformer"

    def along(self, trial: Trial, path: Int[Array, "B W"]) -> Trial:
        """Reorders a trial so that one branch of the tree comes first.

        Args:
          trial: the trial of a tree.
          path: window indices of the branch, beginning with the root's; entries beyond the branch
            are never kept.
        """
        raise NotImplementedError(f"{type(self).__name__}.along")


def check_window(window: Int[Array, "B W"], widest: int | None) -> None:
    """Raises ValueError for a window that is wider than the target's caches allow.

    In a stack with sliding-window attention, a wider window would overwrite ring slots that are
    still visible.
    """
    if widest is not None and window.shape[1] > widest:
        raise ValueError(
            f"a window of {window.shape[1]} bytes does not fit a target of width {widest}"
        )


def take_in(target: Target, params, state: State, text: Text, *, width: int) -> State:
    """Processes all but the last byte of each row's text, `width` bytes at a time.

    Args:
      target: the model.
      params: its parameters.
      state: after the first `state.length` bytes of each row's text.
      text: the texts. Rows with less to process stand still; nothing their windows hold is kept.
      width: number of bytes per call of `extend`.
    """
    todo = text.length - 1

    def step(state):
        place = state.length[:, None] + jnp.arange(width)
        window = jnp.take_along_axis(text.ids, place, axis=1, mode="fill", fill_value=0)
        count = jnp.clip(todo - state.length, 0, width)
        _, trial = target.extend(params, state, window, most=count)
        return target.commit(trial, count)

    return jax.lax.while_loop(lambda state: (state.length < todo).any(), step, state)
