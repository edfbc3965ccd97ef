"""`Draft`, the proposal of a drafter: its bytes, and how they are sampled."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.sampling import Sampling
from bytelax.decode.target import State
from bytelax.models.pytree import pytree


class DraftPasses(NamedTuple):
    """Number of forward passes made to propose a draft, per row and network."""

    decoder: Int[Array, " B"]  # the target's local decoder, or part of a byte transformer
    encoder: Int[Array, " B"]
    global_: Int[Array, " B"]
    patcher: Int[Array, " B"]
    draft_model: Int[Array, " B"]  # a network that is not part of the target


def no_passes(batch: int) -> DraftPasses:
    """Returns the counts of a batch that made no forward pass."""
    return DraftPasses(*(jnp.zeros(batch, jnp.int32) for _ in DraftPasses._fields))


@pytree
class Draft:
    """The bytes that a drafter proposes. A deterministic drafter needs `ids` and `length` only.

    Attributes:
      ids: the proposed ids; entries at or beyond `length` are never read.
      length: number of bytes proposed in each row, 0..K. Whether position j belongs to the draft
        may depend on the text and on the ids before j, but never on id j. If a draft is cut because
        of the id it loses, the remaining ids are no longer samples from `log_probs`, and the output
        no longer follows the target's distribution.
      log_probs: the distribution that each id was sampled from, after temperature and truncation,
        in nats. None means that the draft is deterministic: every distribution is one-hot.
      passes: forward passes made to propose. None means none.
      parents: for a tree, the window index of each id's parent; the pending byte has index 0, and
        the id at position j has a parent in 0..j. None means a chain, where each id follows the one
        before it.
      state: the target's state in the buffers that drafting has written to, so that they are not
        copied, or with what drafting has computed of a window of K + 1 bytes. Its meaning must be
        unchanged: the drafter may only have written to positions that the window overwrites. None
        means the state as it was.
    """

    ids: Int[Array, "B K"]
    length: Int[Array, " B"]
    log_probs: Float[Array, "B K V"] | None = None
    passes: DraftPasses | None = None
    parents: Int[Array, "B K"] | None = None
    state: State = None

    def written_out(self, vocab_size: int | None = None) -> "Draft":
        """Returns the draft as rules read it: no `state`, and no None in a field but `parents`.

        Args:
          vocab_size: number of ids of the target; None leaves `log_probs` as it is.
        """
        log_probs = self.log_probs
        if log_probs is None and vocab_size is not None:
            log_probs = sampling.one_hot(self.ids, vocab_size)
        return dataclasses.replace(
            self,
            log_probs=log_probs,
            passes=no_passes(len(self.ids)) if self.passes is None else self.passes,
            state=None,
        )

    def widened(self, places: int) -> "Draft":
        """Pads the draft to `places` positions; the added ones are never part of the draft."""
        further = places - self.ids.shape[1]
        if not further:
            return self

        def pad(x):
            return x if x is None else jnp.pad(x, ((0, 0), (0, further), *((0, 0),) * (x.ndim - 2)))

        names = ("ids", "log_probs", "parents")
        return dataclasses.replace(self, **{name: pad(vars(self)[name]) for name in names})


def certain(ids: Int[Array, "B K"], *, length: Int[Array, " B"] | None = None) -> Draft:
    """Creates a deterministic draft that took no forward pass.

    Args:
      ids: the proposed ids.
      length: number of bytes proposed in each row; None proposes all of them.
    """
    batch, places = ids.shape
    return Draft(ids, jnp.full(batch, places) if length is None else length)


class Drawn(NamedTuple):
    """Sampled ids, and the distributions that they come from."""

    ids: Int[Array, "B N"]
    log_probs: Float[Array, "B N V"]


def draw(logits: Float[Array, "B N V"], how: Sampling, uniforms: Float[Array, "B N"]) -> Drawn:
    """Samples one id per position from the drafter's logits, with the request's sampling.

    Args:
      logits: the drafter's logits.
      how: `DraftInput.sampling`.
      uniforms: numbers from `DraftInput.uniforms`, each to be used only once.
    """
    log_probs = sampling.process_logits(logits, how)
    if how.greedy:
        return Drawn(log_probs.argmax(-1).astype(jnp.int32), log_probs)
    return Drawn(sampling.sample(log_probs, uniforms), log_probs)


def in_a_row(*parts: Drawn) -> Drawn:
    """Concatenates sampled bytes along the position axis."""
    return Drawn(*(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def scan(step: Callable, carry: Any, xs: Any) -> tuple[Any, Any]:
    """Calls `jax.lax.scan`; there may be no steps under `jax.disable_jit` either."""
    steps = len(jax.tree.leaves(xs)[0])
    with contextlib.nullcontext() if steps else jax.disable_jit(False):
        return jax.lax.scan(step, carry, xs)


def scanned(drawn: Drawn) -> Drawn:
    """Reshapes what a scan has stacked from [T, B, N] to [B, T * N]."""

    def flat(x):
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])

    return Drawn(*map(flat, drawn))


def draft_of(
    drawn: Drawn,
    *,
    length: Int[Array, " B"] | None = None,
    passes: DraftPasses | None = None,
    state: Any = None,
) -> Draft:
    """Packs sampled bytes into a `Draft`.

    Args:
      drawn: the bytes.
      length: number of bytes proposed in each row; None proposes all of them.
      passes: as in `Draft`.
      state: as in `Draft`.
    """
    batch, places = drawn.ids.shape
    return Draft(
        ids=drawn.ids,
        length=jnp.full(batch, places) if length is None else length,
        log_probs=drawn.log_probs,
        passes=passes,
        state=state,
    )
