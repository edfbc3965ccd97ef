"""Seconds of compiling, and where programs are kept."""

import types

import jax
import jax.numpy as jnp
import pytest

from bytelax import compiling


def test_seconds_are_counted_once_and_only_where_they_are_spent():
    inner = jax.jit(lambda x: jnp.sin(x) + 1)
    outer = jax.jit(lambda x: inner(x) * 2)  # traced within a trace
    with compiling.watch() as all_of_it:
        with compiling.watch() as first:
            outer(1.0)
        with compiling.watch() as again:
            outer(2.0)
    assert first.seconds > 0 and again.seconds == 0 and all_of_it.seconds == 0
    outer(jnp.ones(3))  # nobody watches
    spans = compiling.Compiling()
    spans.add(1e-3)
    spans.add(10.0)  # began before, and holds it
    assert spans.seconds == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("variables", "set_before", "kept"),
    [
        ({}, None, "home/.cache/bytelax/programs"),
        ({"XDG_CACHE_HOME": "elsewhere"}, None, "elsewhere/bytelax/programs"),
        ({"BYTELAX_CACHE": "mine"}, None, "mine"),
        ({"BYTELAX_CACHE": "off"}, None, None),
        ({}, "of JAX", None),
    ],
)
def test_where_programs_are_kept(monkeypatch, variables, set_before, kept):
    for name in ("XDG_CACHE_HOME", "BYTELAX_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "home"} | variables).items():
        monkeypatch.setenv(name, value)
    settings = {}
    config = types.SimpleNamespace(
        jax_compilation_cache_dir=set_before, update=settings.__setitem__
    )
    monkeypatch.setattr(compiling, "jax", types.SimpleNamespace(config=config))
    compiling.keep_programs()
    assert settings.get("jax_compilation_cache_dir") == kept
