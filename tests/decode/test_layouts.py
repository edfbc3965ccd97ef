"""What programs for other platforms do otherwise, run on the CPU: they write the same bytes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import cuda, dispatch
from bytelax_kernels.dispatch import traced_for

from bytelax import methods
from bytelax.decode import Params, Text
from bytelax.models import weights
from tests.helpers import models_for_tests as models
from tests.helpers.emulating import EMULATED, on_gpu


def drafted(config):
    """A method whose BLT drafts for itself, its parameters, and two prompts."""
    model = models.model(config)
    method, own = methods.build("blt-s", model, draft_length=3)
    ids = jnp.pad(models.random_text(2, 24), ((0, 0), (0, 40)))
    return method, Params(model.params, own), Text(ids, jnp.asarray([24, 11]))


@pytest.mark.slow  # the caches: models/test_kv_cache.py
def test_caches_of_tpus():
    """Rings that wrap, documents, grouped queries; `cut` slices the bytes of a patch."""
    method, params, text = drafted(models.VARIANTS["cut"])
    wanted, out = (decoded(method, params, text, platform=name) for name in ("cpu", "tpu"))
    assert out.state.decoder[0].in_lines and not wanted.state.decoder[0].in_lines
    same_bytes(out, wanted)


@pytest.mark.slow  # the kernels: models/test_fused.py
@pytest.mark.parametrize("platform", [EMULATED])
def test_fused_layers_of_gpus(platform, monkeypatch):
    """The kernels in the place of norms, products, rotary positions and writes to caches."""
    wide = {"dim": 32, "head_dim": 16}
    parts = dict.fromkeys(("encoder", "global_transformer", "decoder"), wide)
    method, params, text = drafted(models.replace(models.BASE, **parts))
    wanted = decoded(method, params, text, platform="cpu")
    monkeypatch.setitem(dispatch._PLATFORMS, platform, "cpu")
    laid = jax.tree_util.tree_map_with_path(weights.for_gpus, params.target)
    params = params._replace(target=laid)
    with on_gpu(), traced_for(platform):
        traced = str(jax.make_jaxpr(functools.partial(decode, method))(params, text))
        out = decoded(method, params, text, platform=platform)
    for kernel in cuda.KERNELS:
        assert f"bytelax_{kernel}_gpu" in traced
    same_bytes(out, wanted)


def decode(method, params, text):
    return method.decode(params, method.init(params, text, budget=30))


def decoded(method, params, text, *, platform):
    with traced_for(platform):
        run = jax.jit(functools.partial(decode, method))
        return jax.block_until_ready(run(params, text))


def same_bytes(out, wanted):
    np.testing.assert_array_equal(out.text.ids, wanted.text.ids)
    np.testing.assert_array_equal(out.counts.rounds, wanted.counts.rounds)
