"""Sampling: the only module that applies temperature, top-k, top-p and banned ids.

Plain decoding, drafting and verification all call `process_logits`, so that p and q in
min(1, p / q) are the distributions that are really sampled from.
"""

import reprlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from bytelax.compiling import random_key
from bytelax.models.pytree import pytree, static
from bytelax.vocab import ALL_BYTES, Vocabulary

# Purposes of random numbers. Draft, acceptance and residual never share a stream.
DRAFT, ACCEPT, RESIDUAL = range(3)

_COLDEST = 1e-4  # below this, sums of logits / temperature may leave the range of float32
_HOTTEST = 1e6  # every id is equally likely by now

ByRow = float | Sequence[float] | np.ndarray  # a number for all rows, or one for each


@pytree
class Sampling:
    """The sampling settings of every row. Build one with `Sampling.of`.

    Temperature, top-k and top-p are arrays, so that changing them does not trigger a recompilation.

    Attributes:
      temperature: divides the logits; a row with 0 takes the likeliest id.
      top_k: keep the k likeliest ids; 0 keeps all.
      top_p: keep the smallest set of likeliest ids with at least this total probability.
      greedy: static; every row takes the likeliest id.
      truncated: static; some row uses top_k or top_p.
      allow_eos: static; EOS may be emitted.
      vocabulary: static; the ids that may be emitted; `Method.init` takes those of its target.
    """

    temperature: Float[Array, " B"]
    top_k: Int[Array, " B"]
    top_p: Float[Array, " B"]
    greedy: bool = static()
    truncated: bool = static()
    allow_eos: bool = static()
    vocabulary: Vocabulary = static(default=ALL_BYTES)

    @classmethod
    def of(
        cls,
        batch: int,
        *,
        temperature: ByRow = 0.0,
        top_k: ByRow = 0,
        top_p: ByRow = 1.0,
        allow_eos: bool = True,
    ) -> "Sampling":
        """Creates the settings of a batch; temperature 0 is greedy.

        Each is a number for all rows, or a sequence of one for each row. Greedy and sampled rows
        may be mixed: a greedy row writes the same bytes whatever the others do.

        Raises:
          ValueError: temperature out of range, top_k below 0, or top_p outside (0, 1]; or there
            is not one for each row.
        """
        warmth = _by_row("temperature", temperature, batch)
        _refuse(
            f"temperature must be 0 (greedy), or lie in {_COLDEST}..{_HOTTEST:g}",
            warmth[(warmth != 0) & ~((warmth >= _COLDEST) & (warmth <= _HOTTEST))],
        )
        most = _by_row("top_k", top_k, batch)
        _refuse(
            "top_k must be a whole number from 0 (0 keeps all ids)",
            most[~((most >= 0) & (most == np.floor(most)))],
        )
        share = _by_row("top_p", top_p, batch)
        _refuse("top_p must lie in (0, 1]", share[~((share > 0) & (share <= 1))])
        # Made on the host: `jnp.full` would compile a program for each of them.
        put = jax.device_put
        return cls(
            temperature=put(warmth.astype(np.float32)),
            top_k=put(np.minimum(most, np.iinfo(np.int32).max).astype(np.int32)),
            top_p=put(share.astype(np.float32)),
            greedy=not warmth.any(),
            truncated=bool((most > 0).any() or (share < 1).any()),
            allow_eos=allow_eos,
        )

    @property
    def cold(self) -> Bool[Array, " B"]:
        """The rows that take the likeliest id."""
        return self.temperature == 0


def _by_row(name: str, value: ByRow, batch: int) -> np.ndarray:
    values = np.asarray(value)
    if values.dtype.kind not in "iuf" or values.shape not in ((), (batch,)):
        or_many = f", or one for each of the {batch} rows;" if batch > 1 else ","
        raise ValueError(f"{name} is a number{or_many} got {reprlib.repr(values.tolist())}")
    return np.broadcast_to(values, batch).astype(np.float64)


def _refuse(must: str, wrong: np.ndarray) -> None:
    if wrong.size:
        raise ValueError(f"{must}, got {wrong[0]:g}")


def process_logits(logits: Float[Array, "B W V"], sampling: Sampling) -> Float[Array, "B W V"]:
    """Returns the log-probabilities of the distribution that is sampled, in nats; -inf if banned.

    In a greedy row the distribution is one-hot at the likeliest id that may be emitted; ties go to
    the lowest id. Logits without a law (see `has_law`) give no id a probability.
    """
    logits = without_banned(logits, sampling)
    likeliest = one_hot(logits.argmax(-1), logits.shape[-1])
    lawful = _lawful(logits)[..., None]
    if sampling.greedy:
        return jnp.where(lawful, likeliest, -jnp.inf)
    cold = sampling.cold[:, None, None]
    logits = logits / jnp.where(cold, 1, sampling.temperature[:, None, None])
    if sampling.truncated:
        logits = _truncate(logits, sampling)
    law = jnp.where(cold, likeliest, jax.nn.log_softmax(logits))
    return jnp.where(lawful, law, -jnp.inf)


def byte_log_probs(logits: Float[Array, "B W V"], sampling: Sampling) -> Float[Array, "B W V"]:
    """Returns the model's own log-probabilities (temperature 1) of ids that may be emitted."""
    return jax.nn.log_softmax(without_banned(logits, sampling))


def one_hot(ids: Int[Array, "*B"], size: int) -> Float[Array, "*B {size}"]:
    """Returns the log-probabilities of one-hot distributions at `ids`: 0 there, -inf elsewhere."""
    return jnp.where(ids[..., None] == jnp.arange(size), 0.0, -jnp.inf)


def sample(log_probs: Float[Array, "*B V"], uniform: Float[Array, "*B"]) -> Int[Array, "*B"]:
    """Samples ids by inverting the cumulative distribution; never returns an id of probability 0.

    Args:
      log_probs: distributions, which need not be normalised.
      uniform: random numbers in [0, 1), one per distribution.
    """
    return _sample(log_probs, uniform)


def happens(probability: Float[Array, "*B"], uniform: Float[Array, "*B"]) -> Bool[Array, "*B"]:
    """Returns True with the given probability; a probability of 1 or more always gives True."""
    return _happens(probability, uniform)


# `bytelax.testing` replaces these two to see how numbers are used. They stand apart from the public
# functions so that it also sees those that were imported by name.


def _sample(log_probs, uniform):
    probs = jnp.exp(log_probs.astype(jnp.float32))  # bfloat16 cannot hold their running sum
    cumulative = jnp.cumsum(probs, axis=-1)
    # By rounding, a parallel cumulative sum can increase even where the probability is 0.
    reached = (cumulative > uniform[..., None] * cumulative[..., -1:]) & (probs > 0)
    # By rounding, numbers just below 1 can lie beyond the last step of the cumulative sum.
    return jnp.where(reached.any(-1), reached.argmax(-1), log_probs.argmax(-1)).astype(jnp.int32)


def _happens(probability, uniform):
    return uniform < probability


def row_keys(
    seeds: UInt32[Array, " B"], position: Int[Array, " B"], purpose: int
) -> Key[Array, " B"]:
    """Derives one key per row from its seed, its text length before the round, and a purpose.

    The length grows in every round, so no key is used twice. Nothing depends on the row's place in
    the batch.
    """

    def row_key(seed, at):
        return jax.random.fold_in(jax.random.fold_in(random_key(seed), at), purpose)

    return jax.vmap(row_key)(seeds, position)


def row_uniforms(keys: Key[Array, " B"], count: int) -> Float[Array, "B {count}"]:
    """Returns `count` uniform random numbers in [0, 1) from each row's key."""
    return jax.vmap(lambda key: jax.random.uniform(key, (count,)))(keys)


def has_law(logits: Float[Array, "B W V"], sampling: Sampling) -> Bool[Array, "B W"]:
    """Returns which logits form a distribution: none is NaN or +inf, and some id may be emitted.

    A target that forbids ids gives them -inf. The ids that are banned here are not read.
    """
    return _lawful(without_banned(logits, sampling))


def _lawful(logits):
    # No maximum: without `compiler_options`, XLA:CPU drops the NaN from that of a larger array.
    possible = jnp.isfinite(logits)
    return (possible | (logits == -jnp.inf)).all(-1) & possible.any(-1)


def without_banned(logits: Float[Array, "B W V"], sampling: Sampling) -> Float[Array, "B W V"]:
    """Casts logits to float32 and sets those of ids that are never emitted to -inf."""
    ids = jnp.arange(logits.shape[-1])
    known = sampling.vocabulary
    allowed = (ids >= known.first) & (ids < known.stop)
    if known.eos is not None:
        allowed = jnp.where(ids == known.eos, sampling.allow_eos, allowed)
    return jnp.where(allowed, logits.astype(jnp.float32), -jnp.inf)


def _truncate(logits, sampling):
    """Sets logits outside the top k, or outside the nucleus of probability p, to -inf."""
    size = logits.shape[-1]
    order = jnp.argsort(-logits, axis=-1)  # stable: ties stay in id order
    rank = jnp.argsort(order, axis=-1)
    top_k = jnp.where(sampling.top_k == 0, size, sampling.top_k)[:, None, None]
    logits = jnp.where(rank < top_k, logits, -jnp.inf)
    sorted_probs = jnp.take_along_axis(jax.nn.softmax(logits), order, axis=-1)
    before = jnp.cumsum(sorted_probs, axis=-1) - sorted_probs
    top_p = sampling.top_p[:, None, None]
    inside = (before < top_p) | (top_p == 1)  # rounded sums may reach 1 early
    inside = jnp.take_along_axis(inside, rank, axis=-1)
    return jnp.where(inside | (rank == 0), logits, -jnp.inf)
