"""A drafter may propose what its own law says it never would: then nothing was proposed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.decode import Draft, block_verification, k_seq, rejection

ROWS = 4000
P = np.array([0.5, 0.25, 0.125, 0.125], np.float32)
Q = np.array([0.0, 0.5, 0.5, 0.0], np.float32)  # and yet id 0 is proposed


def proposal():
    with np.errstate(divide="ignore"):
        law = jnp.broadcast_to(jnp.asarray(np.log(Q)), (ROWS, 2, 4))
    return Draft(
        ids=jnp.zeros((ROWS, 2), jnp.int32),
        length=jnp.full(ROWS, 2, jnp.int32),
        log_probs=law,
    )


def of_several(draft, log_probs, uniforms):
    several = type(draft)(**{
        name: None if x is None else type(x)(*(y[None] for y in x))
        if isinstance(x, tuple) else x[None]
        for name, x in vars(draft).items()
    })  # fmt: skip
    return k_seq(several, log_probs[None], uniforms)[0]


@pytest.mark.parametrize("rule", [rejection, block_verification, of_several])
def test_the_emitted_byte_is_the_targets_own(rule):
    """It used to be accepted for certain, and ended all rows at once if it was an EOS."""
    log_probs = jnp.broadcast_to(jnp.log(P), (ROWS, 3, 4))
    grid = (jnp.arange(ROWS) + 0.5) / ROWS
    uniforms = jnp.broadcast_to(grid[:, None, None], (ROWS, 2, 3))
    emitted = jax.jit(rule)(proposal(), log_probs, uniforms)
    assert emitted.drafted.max() == 0 and (emitted.count == 1).all()
    counts = np.bincount(np.asarray(emitted.ids[:, 0]), minlength=4)
    np.testing.assert_allclose(counts / ROWS, P, atol=2 / ROWS)
