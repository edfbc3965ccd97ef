"""Where patches begin and end: the open patch, and the patches that close in a window.

The causal patching rule is that of BLT (arXiv 2412.09871, section 2.3, and its released patcher):
whether byte i + 1 starts a patch depends only on bytes up to i. Positions 0 and 1 always start a
patch, so the first patch is the BOS alone. Nothing here has parameters. A whole text is a window
whose first byte has position 0.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from bytelax_kernels import dispatch
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.models.configs import BLTConfig, PatchingConfig

_WINDOW = 256  # bytes; longer texts are those of training and scoring
_FEW = 34  # states around a window of a draft


class OpenPatch(NamedTuple):
    """State of the patching rule, with leading axes [B] or [B, number of states]."""

    start: Int[Array, " *B"]  # position of the first byte of the open patch
    rule_start: Int[Array, " *B"]  # the same before patches are cut to max_patch_length
    entropy: Float[Array, " *B"]  # e_i of the latest byte i, in nats


def no_patch(batch: int) -> OpenPatch:
    """The initial state, before the first byte: position 0 starts a patch."""
    return OpenPatch(
        jnp.zeros(batch, jnp.int32), jnp.zeros(batch, jnp.int32), jnp.zeros(batch, jnp.float32)
    )


def open_patches(
    state: OpenPatch,
    entropies: Float[Array, "B W"],
    positions: Int[Array, "B W"],
    *,
    config: PatchingConfig,
) -> OpenPatch:
    """Advances the patching rule over a window: the open patch before and after each byte.

    Args:
      state: the open patch before the window, with axes [B].
      entropies: entropies e_i, in nats, after each byte of the window.
      positions: positions of the bytes in their texts.
      config: the patching rule.

    Returns:
      The states with axes [B, W + 1]. Entry w is the patch that byte w of the window belongs to,
      and entry W is the patch of the byte after the window. Byte w is the last of its patch if and
      only if `start[:, w + 1]` is its position plus 1.
    """
    entropy = jnp.concatenate([state.entropy[:, None], entropies], axis=1)
    after = positions + 1
    rule = jnp.where(_starts(entropies, entropy[:, :-1], positions, config), after, -1)
    rule = jnp.concatenate([state.rule_start[:, None], rule], axis=1)
    rule = _latest(rule)
    if config.max_patch_length is None:
        return OpenPatch(rule, rule, entropy)
    cut = (after - rule[:, 1:]) % config.max_patch_length == 0
    start = jnp.concatenate([state.start[:, None], jnp.where(cut, after, -1)], axis=1)
    return OpenPatch(_latest(start), rule, entropy)


def closing(open_patch: OpenPatch, positions: Int[Array, "B W"]) -> Bool[Array, "B W"]:
    """Whether each byte of a window is the last of its patch, from the result of `open_patches`."""
    return open_patch.start[:, 1:] == positions + 1


def _starts(entropy, before, i, config):
    """Whether byte i + 1 starts a patch, before patches are cut to `max_patch_length`."""
    forced = i == 0
    if config.mode == "byte":
        return jnp.ones_like(forced)
    if config.mode == "stride":
        return i % config.stride == 0
    rise = entropy - before
    if config.monotonicity:
        return forced | (i == 1) | (rise > config.threshold)
    high = entropy > config.threshold
    if config.threshold_add is None:
        return forced | high
    # As released: position 2 always starts a patch and position 3 never does.
    return forced | (i == 1) | ((i != 2) & (rise > config.threshold_add) & high)


def next_byte_entropy(logits: Float[Array, "*B V"]) -> Float[Array, "*B"]:
    """Entropy, in nats, of the next-byte distribution over all ids (arXiv 2412.09871, eq. 1)."""
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


class Frontier(NamedTuple):
    """Patching state at a point of a text, with axes [B], or [B, W + 1] around a window's bytes."""

    open_patch: OpenPatch
    patches: Int[Array, " *B"]  # number of patches closed so far
    last_eos: Int[Array, " *B"]  # position of the latest EOS, -1 if there is none
    last_eos_patch: Int[Array, " *B"]  # index of the latest patch with an EOS, -1 if there is none
    pool: Float[Array, "*B D"]  # maximum of the encoder states over the open patch
    history: Int[Array, "*B T"]  # the latest ids, for the hashes; zeros before the first id


class Patches(NamedTuple):
    """Patches to pool and to run through the global transformer."""

    pool: Float[Array, "B P D"]  # maximum of the encoder states over the patch
    first: Int[Array, "B P"]  # position of the first byte; greater than `last` if there is no patch
    last: Int[Array, "B P"]  # position of the last byte
    # Index of the patch in its text; -1 if there is no patch. The name hides `tuple.index`.
    index: Int[Array, "B P"]  # type: ignore[assignment]
    document: Int[Array, "B P"]  # index of the first patch of its document


def beginning(batch: int, config: BLTConfig, dtype=jnp.float32) -> Frontier:
    """The frontier before the first byte of a text."""
    none = jnp.full(batch, -1, jnp.int32)
    return Frontier(
        open_patch=no_patch(batch),
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
    """Advances the frontier over a window: the frontier before and after each byte.

    Args:
      before: the frontier before the window.
      ids: ids of the window.
      states: encoder states of the window.
      positions: positions of the bytes.
      open_patch: from `open_patches`.
      last_eos: from `last_eos_before`.

    Returns:
      The frontiers with axes [B, W + 1].
    """
    closes = closing(open_patch, positions)
    patches = before.patches[:, None] + jnp.cumsum(closes, axis=1)
    has_eos = closes & (last_eos[:, 1:] >= open_patch.start[:, :-1])
    eos_patch = jnp.where(has_eos, patches - 1, -1)
    history = jnp.concatenate([before.history, ids], axis=1)
    return Frontier(
        open_patch=open_patch,
        patches=jnp.concatenate([before.patches[:, None], patches], axis=1),
        last_eos=last_eos,
        last_eos_patch=_latest(
            jnp.concatenate([before.last_eos_patch[:, None], eos_patch], axis=1)
        ),
        pool=_running_maximum(
            before.pool.astype(states.dtype), states, open_patch.start[:, :-1] == positions
        ),
        history=_suffixes(history, before.history.shape[1]),
    )


class Candidates(NamedTuple):
    """What patches that close in a window are selected from."""

    closes: Bool[Array, "B W"]
    pool: Float[Array, "B W+1 D"]
    numbers: Int[Array, "B 4 W"]  # of the patch that ends at each byte, as in `Patches`


def candidates(
    frontier: Frontier, closes: Bool[Array, "B W"], positions: Int[Array, "B W"]
) -> Candidates:
    """What `closing_patches` selects from.

    Args:
      frontier: from `advanced`.
      closes: the bytes at which a patch closes, or a subset of them.
      positions: positions of the window's bytes.
    """
    first, index = frontier.open_patch.start[:, :-1], frontier.patches[:, :-1]
    document = frontier.last_eos_patch[:, :-1] + 1
    return Candidates(closes, frontier.pool, jnp.stack([first, positions, index, document], axis=1))


def closing_patches(found: Candidates, nth: Int[Array, " P"]) -> Patches:
    """Selects patches among those that close in a window, by their order.

    Args:
      found: from `candidates`.
      nth: which of these patches to select, counted from 0. Where a row has fewer patches, the
        entry is marked as absent, and its pool is zero. Then so is its latent, and compiled
        products leave it out.
    """
    width = found.closes.shape[1]
    slot = nth_true(found.closes, nth)
    there = slot < width
    slot = jnp.minimum(slot, width - 1)
    pool = jnp.take_along_axis(found.pool, (slot + 1)[..., None], axis=1)
    numbers = jnp.take_along_axis(found.numbers, slot[:, None], axis=2)
    first, last, index, document = (numbers[:, place] for place in range(4))
    return Patches(
        pool=jnp.where(there[..., None], pool, 0),
        first=jnp.where(there, first, 1),
        last=jnp.where(there, last, 0),
        index=jnp.where(there, index, -1),
        document=document,
    )


def nth_true(flags: Bool[Array, "B S"], n: Int[Array, "*N"]) -> Int[Array, "B *N"]:
    """Index of the n-th True of each row, counted from 0, or S if a row has fewer."""
    count = jnp.cumsum(flags, axis=1)
    # In a window, comparing everything is one kernel; a search is a loop, which ends a CUDA graph.
    method = "compare_all" if flags.shape[1] <= _WINDOW else "scan"
    return jax.vmap(lambda row: jnp.searchsorted(row, n + 1, method=method))(count)


def _latest(places: Int[Array, "B S"]) -> Int[Array, "B S"]:
    """Running maximum of places in a text."""
    if dispatch.platform() != "gpu" or places.shape[1] > _FEW:
        return jax.lax.cummax(places, axis=1)
    # Each maximum becomes part of what reads it, where `cummax` is an operation of its own.
    return jnp.stack([*itertools.accumulate(places.T, jnp.maximum)], axis=1)


def _running_maximum(
    state: Float[Array, "B D"], x: Float[Array, "B W D"], starts: Bool[Array, "B W"]
) -> Float[Array, "B W+1 D"]:
    """Running maximum of the encoder states over each patch, before and after each byte.

    Args:
      state: the maximum before the window.
      x: encoder states of the window.
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
    """The `size` ids before each byte of the window, and before the byte that follows it."""
    count = history.shape[1] - size + 1
    index = jnp.arange(count)[:, None] + jnp.arange(size)
    return history[:, index]
