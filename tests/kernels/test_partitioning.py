"""Kernels called by programs whose arrays XLA splits over a mesh."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.verify_attention import api, reference, verify_attention
from bytelax_kernels.verify_attention.inputs import Inputs, heads_in_lines
from bytelax_kernels.verify_attention.sight import Sight
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.helpers.marks import slow

ROWS, HEADS = P("x"), P(None, None, "x")


def test_the_derivative_is_split_by_rows_and_heads():
    """Of training, under a mesh with two axes: no device asks another for anything."""
    kinds = (AxisType.Auto,) * 2
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"), axis_types=kinds)

    def array(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))

    queries = array((4, 6, 4, 8), P("x", None, "y"))
    keys = array((4, 4, 6, 8), P("x", "y"))
    seen = array((4, 6), P("x"), jnp.int32)
    sight = {"first": seen, "last": seen, "newest": array((4,), P("x"), jnp.int32)}

    @jax.jit
    def gradient(queries, keys, values, sight):
        out, back = jax.vjp(lambda *x: verify_attention(*x, **sight), queries, keys, values)
        return back(out)

    program = gradient.lower(queries, keys, keys, sight).compile().as_text()
    assert not re.findall("all-gather|all-reduce|all-to-all|collective-permute", program)


# Those that are fast have each split of each cache.
CASES = [
    slow(*kind, spec, in_lines)
    if (spec == HEADS) ^ in_lines ^ (kind[1] == 2)
    else (*kind, spec, in_lines)
    for kind in [(4, 4, False), (4, 2, True), (4, 1, False)]
    for spec in (ROWS, HEADS)
    for in_lines in (False, True)
]


@pytest.mark.parametrize(("heads", "kv_heads", "tree", "spec", "in_lines"), CASES)
def test_each_device_attends_with_its_rows_or_heads(heads, kv_heads, tree, spec, in_lines):
    """The reference in the place of the kernel: no device asks another for anything."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",), axis_types=(AxisType.Auto,))
    rng = np.random.default_rng(0)
    shapes = [(4, 3, heads, 8), *[(4, kv_heads, 16, 8)] * 2]
    arrays = [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]
    last = jnp.tile(jnp.arange(8, 11), (4, 1))
    flags = jnp.ones((4, 3, 3), bool) if tree else None
    sight = Sight(jnp.zeros_like(last), last, jnp.full(4, 10), flags)

    @jax.jit
    def call(queries, keys, values, sight):
        inputs = Inputs(queries, keys, values, sight)
        return api._split(lambda inputs: reference.dense(inputs), inputs)(inputs)

    wanted = call(*arrays, sight)
    if in_lines:
        arrays = heads_in_lines(Inputs(*arrays, sight))[:3]
    by_head = "x" if kv_heads > 1 else None
    caches = ROWS if spec == ROWS else P(None, None, by_head) if in_lines else P(None, by_head)
    rows = ROWS if spec == ROWS else P()
    specs = (spec, caches, caches, rows)
    split = [
        jax.device_put(part, NamedSharding(mesh, where))
        for part, where in zip((*arrays, sight), specs, strict=True)
    ]
    program = call.lower(*split).compile()
    assert not re.findall("all-gather|all-reduce|all-to-all", program.as_text())
    out = program(*split)
    assert out.sharding.spec == spec
    np.testing.assert_array_equal(out, wanted)
