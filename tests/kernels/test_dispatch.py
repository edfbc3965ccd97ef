"""What a program is traced for."""

import jax
import jax.numpy as jnp
import pytest
from bytelax_kernels import dispatch
from bytelax_kernels.verify_attention import verify_attention


def traced():
    """The jaxpr of attention in shapes that the kernels take."""
    keys = jax.ShapeDtypeStruct((1, 2, 256, 64), jnp.float32)
    queries = jax.ShapeDtypeStruct((1, 8, 2, 64), jnp.float32)
    places, newest = (jax.ShapeDtypeStruct(x, jnp.int32) for x in ((1, 8), (1,)))

    def attend(queries, keys, values, first, last, newest):
        return verify_attention(queries, keys, values, first=first, last=last, newest=newest)

    return str(jax.make_jaxpr(attend)(queries, keys, keys, places, places, newest))


@pytest.mark.parametrize(("platform", "kernels"), [(None, True), ("tpu", True), ("cpu", False)])
def test_only_the_platform_that_is_asked_for_is_traced(platform, kernels):
    if platform is None:
        assert ("pallas_call" in traced()) == kernels
        return
    with dispatch.traced_for(platform):
        assert ("pallas_call" in traced()) == kernels
    assert "pallas_call" in traced()  # the context has ended
