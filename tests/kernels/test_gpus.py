"""A GPU runs the kernels that it has instructions and shared memory for, and XLA the others."""

import importlib
import types

import jax
import jax.numpy as jnp
import pytest
from bytelax_kernels import gpus
from bytelax_kernels.append_attention.benchmark import Case, attend, example
from bytelax_kernels.dense import dense
from bytelax_kernels.dispatch import on_gpus, traced_for
from bytelax_kernels.unmask import Rule, unmask
from bytelax_kernels.verify_attention import verify_attention

QUERIES = jnp.zeros((1, 8, 2, 64), jnp.bfloat16)
CACHE = jnp.zeros((1, 2, 256, 64), jnp.bfloat16)
PLACES = jnp.zeros((1, 8), jnp.int32)
LOGITS = jnp.zeros((1, 8, 260))
CALLS = {  # with the name of a kernel's call in a trace
    "verify_attention": ("mpmd_map", lambda: verify_attention(
        QUERIES, CACHE, CACHE, first=PLACES, last=PLACES, newest=PLACES[:, 0]
    )),
    "unmask": ("mpmd_map", lambda: unmask(
        LOGITS, PLACES, PLACES == 0, rule=Rule("entropy", 0.7)
    )),
    "dense": ("pallas_call", lambda: dense(QUERIES[0, :, 0], CACHE[0, 0, :64])),
    "append_attention": ("pallas_call", lambda: attend(example(Case(slots=64)))),
}  # fmt: skip
A100_AND_LATER = {"dense", "append_attention"}
RUN = {
    "9.0": set(CALLS),
    "8.0": A100_AND_LATER,
    "10.0": A100_AND_LATER,
    "8.9": set(),
    "12.0": set(),
    "gfx942": set(),
}


def run_by_kernels():
    """The operations that a program for GPUs calls a kernel of ours for."""
    with traced_for("gpu"):
        return {
            name
            for name, (call, function) in CALLS.items()
            if call in str(jax.make_jaxpr(lambda function=function: function())())
        }


@pytest.mark.parametrize(("capability", "kernels"), RUN.items())
def test_a_card_runs_the_kernels_made_for_it(capability, kernels, monkeypatch):
    gpu = types.SimpleNamespace(compute_capability=capability, device_kind="a card")
    monkeypatch.setattr(jax, "local_devices", lambda backend: [gpu])
    assert run_by_kernels() == kernels
    monkeypatch.setattr(gpus.shutil, "which", lambda name: name)
    (line,) = gpus.report()
    by_kernels, _, by_xla = line.partition("XLA runs")
    assert {name for name in CALLS if name in by_kernels} == kernels
    assert {name for name in CALLS if name in by_xla} == set(CALLS) - kernels


def test_ahead_of_time():
    """For a card that is named, and for a Hopper where none is."""
    assert run_by_kernels() == set(CALLS)
    with gpus.traced_for("8.0"):
        assert run_by_kernels() == A100_AND_LATER


@pytest.mark.parametrize("backend", gpus.BACKENDS)
def test_jax_has_what_the_kernels_are_written_with(backend):
    """Where a newer jax has it no longer, XLA runs everything, and nobody else would notice."""
    importlib.import_module(backend.module)
    for kernel in backend.kernels:
        importlib.import_module(f"bytelax_kernels.{kernel}.gpu")


def test_a_jax_without_it_runs_xla(monkeypatch):
    gone = gpus.TRITON._replace(module="jax.experimental.pallas.gone")
    kernel = on_gpus(gone, lambda: pytest.fail("what imports it was called"))
    assert not kernel.takes(None)
    card = types.SimpleNamespace(compute_capability="9.0", device_kind="NVIDIA H100")
    monkeypatch.setattr(jax, "local_devices", lambda backend: [card])
    monkeypatch.setattr(gpus.shutil, "which", lambda name: name)
    monkeypatch.setattr(gpus, "BACKENDS", (gpus.MOSAIC, gone))
    assert gpus.report() == [
        "On NVIDIA H100: kernels for verify_attention, unmask. XLA runs dense, append_attention: "
        "this jax has no jax.experimental.pallas.gone."
    ]


def test_a_jax_that_finds_no_gpu(monkeypatch):
    monkeypatch.setattr(gpus.shutil, "which", lambda name: name)
    (line,) = gpus.report()
    assert "jax[cuda13]" in line
    monkeypatch.undo()
    assert gpus.report() == []
