"""A GPU runs the kernels that it has instructions and shared memory for, and XLA the others."""

import importlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import cuda, gpus
from bytelax_kernels.append_attention.benchmark import Case, attend, example
from bytelax_kernels.cross_attention import benchmark as cross
from bytelax_kernels.dispatch import on_gpus, traced_for
from bytelax_kernels.unmask import Rule, unmask
from bytelax_kernels.verify_attention import verify_attention

QUERIES = jnp.asarray(np.zeros((1, 8, 2, 64), "bfloat16"))
CACHE = jnp.asarray(np.zeros((1, 2, 256, 64), "bfloat16"))
PLACES = jnp.asarray(np.zeros((1, 8), np.int32))
LOGITS = jnp.asarray(np.zeros((1, 8, 260), np.float32))
CALLS = {  # with the name of a kernel's call in a trace
    "verify_attention": ("mpmd_map", lambda: verify_attention(
        QUERIES, CACHE, CACHE, first=PLACES, last=PLACES, newest=PLACES[:, 0]
    )),
    "unmask": ("mpmd_map", lambda: unmask(
        LOGITS, PLACES, PLACES == 0, rule=Rule("entropy", 0.7)
    )),
    "append_attention": ("ffi_call", lambda: attend(example(Case(slots=64)))),
    "cross_read": ("ffi_call", lambda: cross.run(cross.example(cross.Case()))),
    "cross_write": ("ffi_call", lambda: cross.run(cross.example(cross.Case(reads=False)))),
}  # fmt: skip
KERNELS = {*CALLS, "dense"}
IN_CUDA = set(cuda.KERNELS)
RUN = {
    "9.0": KERNELS,
    "10.0": IN_CUDA,
    "8.0": set(),
    "8.9": set(),
    "12.0": set(),
    "gfx942": set(),
}


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setattr(cuda, "why_not", lambda: None)


def run_by_kernels():
    """The operations that a program for GPUs calls a kernel of ours for."""
    # A product is one where weights lie as the kernel reads them.
    own = {"dense"} if gpus.run(gpus.CUDA) else set()
    with traced_for("gpu"):
        return own | {
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
    assert {name for name in KERNELS if name in by_kernels} == kernels
    assert {name for name in KERNELS if name in by_xla} == KERNELS - kernels


def test_only_the_platform_that_is_asked_for_is_traced():
    def has_kernels():
        _, function = CALLS["verify_attention"]
        return "pallas_call" in str(jax.make_jaxpr(lambda: function())())

    for platform, kernels in (("tpu", True), ("cpu", False)):
        with traced_for(platform):
            assert has_kernels() == kernels
        assert has_kernels()  # the context has ended


def test_ahead_of_time():
    """For a card that is named, and for a Hopper where none is."""
    assert run_by_kernels() == KERNELS
    with gpus.traced_for("10.0"):
        assert run_by_kernels() == IN_CUDA


def test_jax_has_what_the_kernels_are_written_with():
    """Where a newer jax has it no longer, XLA runs everything, and nobody else would notice."""
    assert gpus.MOSAIC.lacking() is None
    for kernel in ("verify_attention", "unmask", *cuda.FOLDERS):
        importlib.import_module(f"bytelax_kernels.{kernel}.gpu")


def test_kernels_that_are_not_there_leave_their_place_to_xla(monkeypatch):
    card = types.SimpleNamespace(compute_capability="9.0", device_kind="NVIDIA H100")
    monkeypatch.setattr(jax, "local_devices", lambda backend: [card])
    monkeypatch.setattr(gpus.shutil, "which", lambda name: name)
    monkeypatch.setattr(cuda, "why_not", lambda: "not compiled")
    gone = gpus.MOSAIC._replace(lacking=lambda: gpus.without("jax.experimental.pallas.gone"))
    kernel = on_gpus(gone, lambda: pytest.fail("what imports it was called"))
    assert not kernel.takes(None)
    assert run_by_kernels() == {"verify_attention", "unmask"}
    monkeypatch.setattr(gpus, "BACKENDS", (gone, gpus.CUDA))
    assert gpus.report() == [
        "On NVIDIA H100: XLA runs verify_attention, unmask: this jax has no "
        "jax.experimental.pallas.gone. XLA runs append_attention, cross_read, cross_write, dense: "
        "not compiled."
    ]


def test_a_jax_that_finds_no_gpu(monkeypatch):
    monkeypatch.setattr(gpus.shutil, "which", lambda name: name)
    (line,) = gpus.report()
    assert "jax[cuda13]" in line
    monkeypatch.undo()
    assert gpus.report() == []
