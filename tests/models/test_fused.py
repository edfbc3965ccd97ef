"""Modules with the execution of decoding, beside the plain one, on the same parameters."""

import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import dispatch
from bytelax_kernels.dispatch import traced_for

from bytelax import architectures
from bytelax.models import fused, kv_cache, narrow, weights
from bytelax.models.block import Block, CrossAttention
from bytelax.models.configs import RopeScaling
from bytelax.models.execution import Execution
from bytelax.models.fused import Fused
from bytelax.models.layers import Dense, RMSNorm
from tests.helpers import models_for_tests as models
from tests.helpers.emulating import EMULATED, on_gpu
from tests.helpers.marks import exhaustive, slow

STACK = models.stack(32, 1, head_dim=16, kv_heads=1, window=9)  # sizes that the kernels take
# And all that an attention may have besides.
QWEN = models.replace(
    STACK,
    biases="all",
    qk_norm=True,
    rope_scaling=RopeScaling(kind="llama3", factor=2.0, original_positions=8),
)
ROWS, WINDOW = 2, 3
# After a part of a text.
POSITIONS = jnp.asarray(11 + np.tile(np.arange(WINDOW, dtype=np.int32), (ROWS, 1)))
SPAN = kv_cache.causal_span(POSITIONS, window=STACK.window)
HOW = {"positions": POSITIONS, "attend": functools.partial(kv_cache.attend, span=SPAN)}
PARTS = {  # name -> function of a block, hidden states and a cache
    "whole": lambda block, x, cache: block(x, cache, **HOW),
    "attends": lambda block, x, cache: block.attends(x, cache, **HOW),
    "transforms": lambda block, x, cache: block.transforms(x),
    "projections": lambda block, x, cache: block.projections(x, POSITIONS),
}
CROSS = {
    "queries": lambda cross, x, attended: cross.queries(x),
    "keys_values": lambda cross, x, attended: cross.keys_values(x),
    "residual": lambda cross, x, attended: cross.residual(x, attended),
}
RNG = np.random.default_rng(0)
X, KERNEL = (
    jnp.asarray(RNG.normal(size=size).astype(np.float32)) for size in ((9, 4, 3), (4, 3, 2, 5))
)


def weight(path, leaf, dtype):
    """Random kernels and biases, and norms that are not 1."""
    spread = leaf.shape[0] ** -0.5 if path[-1].key == "kernel" else 1
    return jnp.asarray(spread * RNG.normal(size=leaf.shape), dtype)


@functools.cache
def inputs(dtype, stack):
    """Parameters of both modules, hidden states, a cache that holds a text, and attended values."""
    x = jnp.asarray(RNG.normal(size=(ROWS, WINDOW, stack.dim)), dtype)
    one = dataclasses.replace(stack, layers=1)
    (cache,) = kv_cache.zeros(one, batch=ROWS, slots=16, dtype=dtype)
    cache = jax.tree.map(lambda part: jnp.asarray(RNG.normal(size=part.shape), dtype), cache)
    attended = jnp.asarray(RNG.normal(size=(ROWS, WINDOW, stack.heads, stack.head_dim)), dtype)

    def every(cross, x):
        return [part(cross, x, attended) for part in CROSS.values()]

    key = jax.random.key(0)
    shapes = (
        jax.eval_shape(lambda: Block(stack).init(key, x, cache, **HOW)),
        jax.eval_shape(lambda: CrossAttention(stack).init(key, x, method=every)),
    )
    block, cross = (
        jax.tree_util.tree_map_with_path(functools.partial(weight, dtype=dtype), each["params"])
        for each in shapes
    )
    return {"block": block, "cross": cross, "x": x, "cache": cache, "attended": attended}


def run(module, part, dtype, platform="cpu"):
    """What one of `PARTS` or `CROSS` computes, and its traced program."""
    given = inputs(dtype, module.config)
    is_block = part in PARTS
    params = {"params": given["block" if is_block else "cross"]}
    if platform == "gpu":
        params = jax.tree_util.tree_map_with_path(weights.for_gpus, params)

    def apply(params, x, other):
        return module.apply(params, x, other, method=(PARTS | CROSS)[part])

    arguments = params, given["x"], given["cache" if is_block else "attended"]
    with traced_for(platform):
        return jax.block_until_ready(jax.jit(apply)(*arguments)), jax.make_jaxpr(apply)(*arguments)


def modules(part, stack):
    kind = Block if part in PARTS else CrossAttention
    return kind(stack), Fused().layer(kind)(stack, Fused())


@pytest.mark.parametrize("part", [*PARTS, *CROSS])
@pytest.mark.parametrize(
    ("dtype", "stack"),
    [
        ("float32", STACK),
        ("bfloat16", QWEN),
        exhaustive("float32", QWEN),
        exhaustive("bfloat16", STACK),
    ],
)
def test_what_is_fused_is_the_plain_module(part, dtype, stack):
    """Bit for bit where no kernel runs."""
    (wanted, _), (out, _) = (run(module, part, dtype) for module in modules(part, stack))
    jax.tree.map(np.testing.assert_array_equal, out, wanted)
    assert np.ptp(np.asarray(jax.tree.leaves(out)[0], np.float32)) > 1


def kernels_of(jaxpr):
    """Names of the kernels that a program calls."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "ffi_call":
            yield eqn.params["target_name"].removeprefix("bytelax_").removesuffix("_gpu")
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns")):
            yield from kernels_of(getattr(value, "jaxpr", value)) if hasattr(value, "eqns") else ()


@pytest.mark.parametrize("platform", [EMULATED])
@pytest.mark.parametrize(
    ("part", "kernels"),
    [
        ("whole", ["dense", "append_attention", "dense", "dense", "dense"]),
        ("queries", ["dense"]),
        ("keys_values", ["dense"]),
        ("residual", ["dense"]),
    ],
)
@pytest.mark.parametrize("stack", [exhaustive(STACK), QWEN])
def test_on_a_gpu_a_product_takes_in_what_surrounds_it(platform, part, kernels, stack, monkeypatch):
    """Its norm, its gate, its residual; the kernels are emulated here."""
    monkeypatch.setitem(dispatch._PLATFORMS, platform, "cpu")
    plain, fused = modules(part, stack)
    wanted, _ = run(plain, part, "float32")
    with on_gpu():
        out, program = run(fused, part, "float32", platform)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), out, wanted)
    assert list(kernels_of(program)) == kernels


def scaled_sums(jaxpr):
    """The products with a whole sum of a matrix product and something else."""
    made = {id(out): eqn for eqn in jaxpr.eqns for out in eqn.outvars}

    def source(x):
        eqn = made.get(id(x))
        while eqn is not None and eqn.primitive.name in ("reshape", "convert_element_type"):
            eqn = made.get(id(eqn.invars[0]))
        return eqn

    def made_by(name, x):
        return (eqn := source(x)) is not None and eqn.primitive.name == name

    return [
        eqn
        for eqn in jaxpr.eqns
        if eqn.primitive.name == "mul"
        for x in eqn.invars
        if made_by("add", x) and any(made_by("dot_general", y) for y in source(x).invars)
    ]


@pytest.mark.parametrize("qk_norm", [False, True])
def test_no_whole_sum_with_a_bias_is_scaled(qk_norm):
    """XLA compiles that wrongly for NVIDIA GPUs until jaxlib 0.11.0 (openxla/xla#46110)."""
    wrong = jax.make_jaxpr(lambda x: 2 * (x @ KERNEL[:, 0, 0] + 1))(X[0, :, :1].T)
    assert scaled_sums(wrong)
    block = Block(models.replace(QWEN, qk_norm=qk_norm))
    for part in ("projections", "attends"):
        assert not scaled_sums(run(block, part, "float32")[1])


def products_of(execution, platform, rows):
    """How many rows a program multiplies, after a look at what comes out."""
    dense = Dense((2, 5), ("head", "head_dim", None, "embed"), execution)

    def apply(x):
        return dense.apply({"params": {"kernel": KERNEL}}, x)

    wanted = jnp.einsum("rhd,hdgn->rgn", X[:rows], KERNEL)
    with traced_for(platform):
        program = jax.make_jaxpr(apply)(X[:rows])
        np.testing.assert_allclose(jax.jit(apply)(X[:rows]), wanted, rtol=1e-5, atol=1e-5)
    (size,) = re.findall(r"f32\[([\d,]+)\] = dot_general", str(program))
    return math.prod(map(int, size.split(","))) // 10


def test_accelerators_multiply_eight_rows_or_more():
    for rows, least in ((1, 8), (3, 9), (5, 10), (8, 8), (9, 9)):
        assert products_of(Fused(), "tpu", rows) == least
    assert products_of(Fused(), "cpu", 1) == products_of(Execution(), "tpu", 1) == 1


@pytest.mark.parametrize("stored", ["int8", "bits"])
def test_narrow_kernels_have_surroundings_too(stored):
    """As the plain steps on the weights that they stand for."""
    x, scale = X.reshape(9, 12)[:, :8], jnp.asarray(RNG.normal(size=8), jnp.float32)
    kernel = np.asarray(RNG.normal(size=(8, 2, 12)), np.float32)
    if stored == "int8":
        given = jax.tree.map(jnp.asarray, narrow.Int8.of(kernel, (0,)))
        kernel = given.values * given.scale
    else:
        given, kernel = (
            narrow.as_bits(jnp.asarray(kernel, jnp.bfloat16)),
            kernel.astype(jnp.bfloat16),
        )
    normed = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale
    gate, other = jnp.moveaxis(jnp.tensordot(normed, jnp.asarray(kernel, jnp.float32), 1), 1, 0)
    onto = X.reshape(9, 12)
    wanted = 2 * onto + jax.nn.silu(gate) * other
    layer = Dense((2, 12), ("embed", None, "hidden"), Fused())
    norm = RMSNorm(1e-5).bind({"params": {"scale": scale}})

    def run(x, kernel):
        bound = layer.bind({"params": {"kernel": kernel}})
        return fused.product(bound, x, norm=norm, gated=True, onto=onto, times=2)

    out = jax.jit(run)(x, given)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", [slow(models.BASE), models.BYTE_LM])
def test_a_target_decodes_with_the_fused_execution(config):
    """Chosen in one place: a target's module is the plain one, and so are its parameters."""
    model = models.model(config)
    target = architectures.target_of(model.module)
    assert target.module is model.module and type(model.module.execution) is Execution
    bound = target.bound(model.params)
    trunk = (bound.decoder if hasattr(bound, "decoder") else bound).trunk
    assert all(type(layer) is fused.FusedBlock for layer in trunk.layers)
    ids = jnp.asarray(models.random_text(2, 9))
    plain, fast = (
        jax.jit(lambda params, m=m: m.apply({"params": params}, ids))(model.params)
        for m in (model.module, model.device_module)
    )
    np.testing.assert_array_equal(fast, plain)
    assert plain.shape == (2, 9, 260) and plain.dtype == "float32"
    np.testing.assert_allclose(plain, model.logits(ids), atol=1e-5)
