"""No compiled program of the bundled models copies a cache within a round."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import methods
from bytelax.decode import Params, Sampling, Text
from tests.helpers.marks import exhaustive

CONTEXT = 1024  # bytes; a cache that grows with the text has at least as many lines
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.-]+) \(")
_CALLED = re.compile(r"(?:calls|body|condition|to_apply)=%?([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_COPY = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = \w+\[([\d,]*)\]\S* (?:copy|transpose)\(")


def copies_in_loops(text: str, *, numbers: int) -> list[str]:
    """Shapes of the copies and transposes of at least `numbers` numbers that a loop repeats."""
    callers, copied, computation, entry = {}, [], None, None
    for line in text.splitlines():
        if begin := _COMPUTATION.match(line):
            computation = begin[2]
            entry = computation if begin[1] else entry
        called = _CALLED.findall(line)
        for branches in _BRANCHES.findall(line):
            called += [name.strip().lstrip("%") for name in branches.split(",")]
        for name in called:
            callers.setdefault(name, set()).add(computation)
        if copy := _COPY.match(line):
            copied.append((computation, copy[1]))
    bodies = set(re.findall(r"body=%?([\w.-]+)", text))

    def repeated(name):
        return name != entry and (name in bodies or any(map(repeated, callers.get(name, ()))))

    def size(shape):
        return np.prod([int(axis) for axis in shape.split(",") if axis], dtype=int)

    return [shape for name, shape in copied if size(shape) >= numbers and repeated(name)]


def program(loop, *arguments):
    return jax.jit(loop, donate_argnums=0).lower(*arguments).compile().as_text()


def test_a_copy_in_a_loop_is_seen():
    cache = jnp.zeros((CONTEXT, 8))

    def kept(cache):
        return jax.lax.fori_loop(0, 9, lambda i, x: x.at[i].add(1.0), cache)

    def copied(cache):
        def step(i, both):
            old, _ = both
            new = old.at[i].add(1.0)
            return new, old[::-1].at[0].set(new[0])

        return jax.lax.fori_loop(0, 9, step, (cache, cache))

    assert copies_in_loops(program(kept, cache), numbers=CONTEXT) == []
    assert copies_in_loops(program(copied, cache), numbers=CONTEXT)


@pytest.mark.slow  # each compiles for a minute
@pytest.mark.parametrize(
    ("name", "method", "options", "batch"),
    [
        ("tiny", "blt-s", {"draft_length": 8}, 4),
        exhaustive("tiny-d", "blt-dv", {"block_size": 8}, 1),
        ("tiny-lm", "eagle", {"draft_length": 4}, 1),
        exhaustive("tiny-lm", "draft-model", {"draft_model": "tiny-draft"}, 1),
    ],
)
def test_caches_are_not_copied(name, method, options, batch):
    model = bytelax.load(name)
    built, own = methods.build(method, model, **options)
    params = Params(model.device_params, own)
    text = Text(
        jax.ShapeDtypeStruct((batch, CONTEXT), jnp.int32),
        jax.ShapeDtypeStruct((batch,), jnp.int32),
    )

    def init(params, text):
        return built.init(params, text, budget=64, sampling=Sampling.of(batch))

    decoding = jax.eval_shape(init, params, text)
    options = {"xla_backend_optimization_level": 3}
    if jax.__version_info__ < (0, 11):
        options["xla_cpu_use_fusion_emitters"] = True
    compiled = jax.jit(built.decode, donate_argnums=1).lower(params, decoding).compile(options)
    assert copies_in_loops(compiled.as_text(), numbers=16 * CONTEXT) == []
