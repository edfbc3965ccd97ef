"""Sampling: the only place of temperature, top-k, top-p and banned ids.

Plain decoding, drafting and verification all call `process_logits`, so that the p and q of
min(1, p / q) are the laws really drawn from.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from bytelax import vocab
from bytelax.pytree import pytree, static

# What random numbers are for. Draft, acceptance and residual never share a stream.
DRAFT, ACCEPT, RESIDUAL = range(3)

_COLDEST = 1e-4  # below, logits over temperature leave the range of float32 sums


@pytree
class Sampling:
    """How each row samples. Build one with `Sampling.of`.

    The numbers are data, one a row, so that changing them compiles nothing anew.

    Attributes:
      temperature: divides the logits.
      top_k: keep the k likeliest ids; 0 keeps all.
      top_p: keep the smallest set of likeliest ids that holds this much probability.
      greedy: static; every row takes the likeliest id.
      truncated: static; some row has a top_k or top_p.
      allow_eos: static; EOS may be emitted. No other special ever is.
    """

    temperature: Float[Array, " B"]
    top_k: Int[Array, " B"]
    top_p: Float[Array, " B"]
    greedy: bool = static()
    truncated: bool = static()
    allow_eos: bool = static()

    @classmethod
    def of(
        cls,
        batch: int,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        allow_eos: bool = True,
    ) -> "Sampling":
        """The same settings for every row; temperature 0 is greedy.

        Raises:
          ValueError: temperature out of range, top_k below 0, or top_p outside (0, 1].
        """
        if temperature != 0 and not _COLDEST <= temperature < float("inf"):
            raise ValueError(
                f"temperature must be 0 (greedy), or at least {_COLDEST} and finite, "
                f"got {temperature}"
            )
        if top_k < 0 or top_k != int(top_k):
            raise ValueError(f"top_k must be a number from 0 (0 keeps all ids), got {top_k}")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], got {top_p}")
        return cls(
            temperature=jnp.full(batch, temperature or 1.0, jnp.float32),
            top_k=jnp.full(batch, min(top_k, vocab.SIZE), jnp.int32),
            top_p=jnp.full(batch, top_p, jnp.float32),
            greedy=temperature == 0,
            truncated=top_k > 0 or top_p < 1,
            allow_eos=allow_eos,
        )


def process_logits(logits: Float[Array, "B W V"], law: Sampling) -> Float[Array, "B W V"]:
    """Log-probabilities of the distribution that is sampled; -inf where an id is never emitted.

    Greedy is the one-hot law of the likeliest id that may be emitted, the lowest id among equals.
    """
    logits = without_banned(logits, law)
    if law.greedy:
        return one_hot(logits.argmax(-1), logits.shape[-1])
    logits = logits / law.temperature[:, None, None]
    if law.truncated:
        logits = _truncate(logits, law)
    return jax.nn.log_softmax(logits)


def byte_law(logits: Float[Array, "B W V"], law: Sampling) -> Float[Array, "B W V"]:
    """Log-probabilities under the model itself, temperature 1, of the ids that may be emitted."""
    return jax.nn.log_softmax(without_banned(logits, law))


def probability(
    logits: Float[Array, "B W V"], law: Sampling, ids: Int[Array, "B W"]
) -> Float[Array, "B W"]:
    """The model's own probability of each id, temperature 1."""
    log_probs = byte_law(logits, law)
    return jnp.exp(jnp.take_along_axis(log_probs, ids[..., None], axis=-1)[..., 0])


def one_hot(ids: Int[Array, "*B"], size: int) -> Float[Array, "*B {size}"]:
    """Log-probabilities of the one-hot distributions at `ids`."""
    return jnp.where(ids[..., None] == jnp.arange(size), 0.0, -jnp.inf)


def sample(log_probs: Float[Array, "*B V"], uniform: Float[Array, "*B"]) -> Int[Array, "*B"]:
    """Samples by inverse CDF: the id whose share of [0, 1) holds `uniform`, never one of mass 0."""
    probs = jnp.exp(log_probs)
    cumulative = jnp.cumsum(probs, axis=-1)
    # A parallel sum may rise by rounding where the probability is 0.
    reached = (cumulative > uniform[..., None] * cumulative[..., -1:]) & (probs > 0)
    # Rounding can leave the top of [0, 1) beyond the last step.
    return jnp.where(reached.any(-1), reached.argmax(-1), log_probs.argmax(-1)).astype(jnp.int32)


def draw(
    log_probs: Float[Array, "*B V"], law: Sampling, uniform: Float[Array, "*B"]
) -> Int[Array, "*B"]:
    """Like `sample`, but takes the likeliest id, and no random number, if sampling is greedy."""
    if law.greedy:
        return log_probs.argmax(-1).astype(jnp.int32)
    return sample(log_probs, uniform)


def happens(probability: Float[Array, "*B"], uniform: Float[Array, "*B"]) -> Bool[Array, "*B"]:
    """Bernoulli: True with this probability; 1 or more is certain. Ids are drawn by `sample`."""
    return uniform < probability


def row_keys(
    seeds: UInt32[Array, " B"], position: Int[Array, " B"], purpose: int
) -> Key[Array, " B"]:
    """One key a row from its seed, its text length at the start of the round, and the purpose.

    The length grows every round, so no key is met twice, and nothing depends on the batch row.
    """

    def row_key(seed, at):
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), at), purpose)

    return jax.vmap(row_key)(seeds, position)


def row_uniforms(keys: Key[Array, " B"], count: int) -> Float[Array, "B {count}"]:
    """`count` numbers in [0, 1) from each row's key."""
    return jax.vmap(lambda key: jax.random.uniform(key, (count,)))(keys)


def without_banned(logits: Float[Array, "B W V"], law: Sampling) -> Float[Array, "B W V"]:
    """The logits in float32, -inf where an id is never emitted."""
    ids = jnp.arange(logits.shape[-1])
    allowed = (ids >= vocab.OFFSET) | (law.allow_eos & (ids == vocab.EOS))
    return jnp.where(allowed, logits.astype(jnp.float32), -jnp.inf)


def _truncate(logits, law):
    """-inf below the k-th logit and outside the nucleus of probability p."""
    size = logits.shape[-1]
    order = jnp.argsort(-logits, axis=-1)  # stable: equals stay in id order
    rank = jnp.argsort(order, axis=-1)
    top_k = jnp.where(law.top_k == 0, size, law.top_k)[:, None, None]
    logits = jnp.where(rank < top_k, logits, -jnp.inf)
    sorted_probs = jnp.take_along_axis(jax.nn.softmax(logits), order, axis=-1)
    before = jnp.cumsum(sorted_probs, axis=-1) - sorted_probs
    top_p = law.top_p[:, None, None]
    inside = (before < top_p) | (top_p == 1)  # the sum of all may round to 1 before the last
    inside = jnp.take_along_axis(inside, rank, axis=-1)
    return jnp.where(inside | (rank == 0), logits, -jnp.inf)
