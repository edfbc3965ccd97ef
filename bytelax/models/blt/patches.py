"""Where patches begin and end in a window of bytes, and what is remembered of the open one.

Nothing here has parameters. A whole text is a window whose first byte has position 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.models import patching
from bytelax.models.blt.config import BLTConfig
from bytelax.models.patching import OpenPatch


class Frontier(NamedTuple):
    """What is known where the next byte will stand. Axes [B], within a window [B, W + 1]."""

    open_patch: OpenPatch
    patches: Int[Array, " *B"]  # closed so far
    last_eos: Int[Array, " *B"]  # position of the latest EOS, -1 where none
    last_eos_patch: Int[Array, " *B"]  # index of the latest patch with an EOS, -1 where none
    pool: Float[Array, "*B D"]  # maximum over the open patch of the encoder states
    history: Int[Array, "*B T"]  # the latest ids, for the hashes; zeros before the first


class Patches(NamedTuple):
    """Patches to pool and to run through the global transformer."""

    pool: Float[Array, "B P D"]  # maximum over the patch of the encoder states
    first: Int[Array, "B P"]  # position of the first byte; beyond `last` where there is no patch
    last: Int[Array, "B P"]
    index: Int[Array, "B P"]  # of the patch in its text; -1 where there is no patch
    document: Int[Array, "B P"]  # first patch of its document


def beginning(batch: int, config: BLTConfig, dtype=jnp.float32) -> Frontier:
    """The frontier before the first byte of a text."""
    none = jnp.full(batch, -1, jnp.int32)
    return Frontier(
        open_patch=patching.no_patch(batch),
        patches=none + 1,
        last_eos=none,
        last_eos_patch=none,
        pool=jnp.zeros((batch, config.encoder.dim), dtype),
        history=jnp.full((batch, config.hashing.history), vocab.BOE, jnp.int32),
    )


def advanced(
    before: Frontier,
    ids: Int[Array, "B W"],
    states: Float[Array, "B W D"],
    *,
    positions: Int[Array, "B W"],
    open_patch: OpenPatch,
    last_eos: Int[Array, "B W+1"],
) -> Frontier:
    """The frontier before and after each byte of a window.

    Args:
      before: the frontier before the window.
      ids: the window.
      states: its encoder states.
      positions: of its bytes.
      open_patch: from `patching.open_patches`.
      last_eos: from `last_eos_before`.
    """
    closes = patching.closing(open_patch, positions)
    patches = before.patches[:, None] + jnp.cumsum(closes, axis=1)
    has_eos = closes & (last_eos[:, 1:] >= open_patch.start[:, :-1])
    eos_patch = jnp.where(has_eos, patches - 1, -1)
    history = jnp.concatenate([before.history, ids], axis=1)
    return Frontier(
        open_patch=open_patch,
        patches=jnp.concatenate([before.patches[:, None], patches], axis=1),
        last_eos=last_eos,
        last_eos_patch=jax.lax.cummax(
            jnp.concatenate([before.last_eos_patch[:, None], eos_patch], axis=1), axis=1
        ),
        pool=_running_maximum(
            before.pool.astype(states.dtype), states, open_patch.start[:, :-1] == positions
        ),
        history=_suffixes(history, before.history.shape[1]),
    )


def closing_patches(
    frontier: Frontier,
    closes: Bool[Array, "B W"],
    positions: Int[Array, "B W"],
    nth: Int[Array, " P"],
) -> Patches:
    """The n-th patches, from 0, that close in a window.

    Args:
      frontier: from `advanced`.
      closes: the bytes at which a patch closes, or some of them.
      positions: of the window's bytes.
      nth: which of those patches; there may be fewer in a row.
    """
    width = closes.shape[1]
    slot = nth_true(closes, nth)
    there = slot < width
    slot = jnp.minimum(slot, width - 1)

    def at(slots):
        return jnp.take_along_axis(slots, slot, axis=1)

    return Patches(
        pool=jnp.take_along_axis(frontier.pool, (slot + 1)[..., None], axis=1),
        first=jnp.where(there, at(frontier.open_patch.start), 1),
        last=jnp.where(there, at(positions), 0),
        index=jnp.where(there, at(frontier.patches), -1),
        document=at(frontier.last_eos_patch) + 1,
    )


def truncated_patch(frontier: Frontier, positions: Int[Array, "B W"]) -> Patches:
    """The patch that is open behind a window, as if it ended there. Where none is open: nothing."""
    newest = positions[:, -1:]
    start = frontier.open_patch.start[:, -1:]
    is_open = start <= newest
    return Patches(
        pool=frontier.pool[:, -1:],
        first=jnp.where(is_open, start, 1),
        last=jnp.where(is_open, newest, 0),
        index=jnp.where(is_open, frontier.patches[:, -1:], -1),
        document=frontier.last_eos_patch[:, -1:] + 1,
    )


def nth_true(flags: Bool[Array, "B S"], n: Int[Array, "*N"]) -> Int[Array, "B *N"]:
    """Index of the n-th (from 0) True of each row; S where there are not that many."""
    count = jnp.cumsum(flags, axis=1)
    return jax.vmap(lambda row: jnp.searchsorted(row, n + 1))(count)


def _running_maximum(
    state: Float[Array, "B D"], x: Float[Array, "B W D"], starts: Bool[Array, "B W"]
) -> Float[Array, "B W+1 D"]:
    """Maximum over the patch so far, before and after each byte of a window.

    Args:
      state: the maximum before the window.
      x: the window's encoder states.
      starts: whether a byte is the first of its patch.
    """

    def combine(left, right):
        (left_starts, left_top), (right_starts, right_top) = left, right
        top = jnp.where(right_starts, right_top, jnp.maximum(left_top, right_top))
        return left_starts | right_starts, top

    flags = jnp.pad(starts, ((0, 0), (1, 0)))[..., None]
    values = jnp.concatenate([state[:, None], x], axis=1)
    return jax.lax.associative_scan(combine, (flags, values), axis=1)[1]


def _suffixes(history: Int[Array, "B T"], size: int) -> Int[Array, "B N S"]:
    """The `size` ids before each byte of the window, and before the byte after it."""
    count = history.shape[1] - size + 1
    index = jnp.arange(count)[:, None] + jnp.arange(size)
    return history[:, index]
