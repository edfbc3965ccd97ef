"""Hash n-gram embeddings: the rows of the hash table that the latest bytes select.

Source: BLT (arXiv 2412.09871, section 3.2.1) as released. For function f and group size g,

    h_i = sum_{j < g} ids[i - g + 1 + j] * prime_f ** j      in signed 64-bit arithmetic that wraps
    row = h_i mod vocab                                      floor-mod, never negative

Ids are hashed rather than byte values, special ids included, and id 0 pads the text on the left.
JAX without x64 has no 64-bit integers, so the sum is computed in four 16-bit limbs held in uint32.
This is exact for groups of up to 128 ids.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bytelax.models.configs import PRIMES, HashConfig

_LIMBS = 4


def hash_ids(ids: Int[Array, "B T"], *, config: HashConfig) -> Int[Array, "B W N"]:
    """Rows of the fused hash table for each new id, one per hash.

    Args:
      ids: `config.history` earlier ids, with zeros before the start of the text, followed by the
        W = T - history new ids.
      config: n-gram lengths, number of functions and table size.

    Returns:
      i32[B, W, N], where N = functions * len(groups). The last axis is function-major, and the
      offset of each hash's table is already added.
    """
    ids = ids.astype(jnp.uint32)
    rows: list[Array] = []
    for function in range(config.functions):
        for group in config.groups:
            offset = len(rows) * config.vocab
            remainder = _remainder(_polynomial(ids, PRIMES[function], group), config.vocab)
            rows.append(remainder[:, config.history - group + 1 :] + offset)
    if not rows:
        return jnp.zeros((ids.shape[0], ids.shape[1] - config.history, 0), jnp.int32)
    return jnp.stack(rows, axis=-1)


def _polynomial(ids, prime, group):
    """The 64-bit hash of every window of `group` ids, as four 16-bit limbs, lowest first."""
    windows = ids.shape[1] - group + 1
    limbs = [jnp.uint32(0)] * _LIMBS
    for j in range(group):
        power = pow(prime, j, 1 << 64)
        window = ids[:, j : j + windows]
        for limb in range(_LIMBS):
            limbs[limb] += window * np.uint32(power >> (16 * limb) & 0xFFFF)
    carry = jnp.uint32(0)
    for limb in range(_LIMBS):
        total = limbs[limb] + carry
        limbs[limb], carry = total & 0xFFFF, total >> 16
    return limbs


def _remainder(limbs, vocab):
    """Floor-mod of a signed 64-bit number by `vocab`.

    The number is reduced as an unsigned one, and 2**64 is subtracted if its sign bit is set.
    """
    remainder = jnp.uint32(0)
    for limb in reversed(limbs):
        for byte in (limb >> 8, limb & 0xFF):
            remainder = (remainder * 256 + byte) % vocab
    negative = limbs[-1] >> 15
    return ((remainder + negative * np.uint32(-(1 << 64) % vocab)) % vocab).astype(jnp.int32)
