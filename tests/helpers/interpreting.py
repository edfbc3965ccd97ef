"""Kernels run on the CPU: simulated memories full of NaN, races looked for."""

import contextlib

import jax
import jax.numpy as jnp
import pytest
from bytelax_kernels import hopper, native
from bytelax_kernels.verify_attention import gpu as verify_attention_gpu
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as tpu_state
from jax._src.pallas.mosaic_gpu.interpret import interpret_pallas_call as gpu_state
from jax._src.pallas.mosaic_gpu.interpret import params as gpu_params
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu


@contextlib.contextmanager
def on(platform: str):
    """Calls of kernels in here are simulated on the CPU; a race fails the test at the end.

    Those of processors are compiled, and run as they are.
    """
    if platform == "cpu":
        yield
        return
    with {"tpu": _tpu, "gpu": _gpu}[platform]() as races:
        yield
        jax.effects_barrier()
        assert not races().races_found


# Of a test that runs the compiled kernels.
COMPILED = pytest.param(
    "cpu", marks=pytest.mark.skipif(not native.available(), reason=str(native.why_not()))
)


@contextlib.contextmanager
def _tpu():
    # What lies behind an array's end is NaN too, as nothing stops a kernel from reading it.
    params = pltpu.InterpretParams(detect_races=True, out_of_bounds_reads="uninitialized")
    with pltpu.force_tpu_interpret_mode(params):
        yield lambda: tpu_state.races


@contextlib.contextmanager
def _gpu():
    """The simulation knows no layouts of registers, which change no value, and not all of wgmma."""
    with (
        pytest.MonkeyPatch.context() as patch,
        gpu_params.force_gpu_interpret_mode(gpu_params.InterpretGPUParams(detect_races=True)),
    ):
        patch.setattr(plgpu, "layout_cast", lambda x, layout: x)
        patch.setattr(hopper, "load", lambda ref, layout: ref[...])
        patch.setattr(
            plgpu,
            "broadcasted_iota",
            lambda dtype, shape, axis, **_: jax.lax.broadcasted_iota(dtype, shape, axis),
        )
        patch.setattr(verify_attention_gpu, "_product", _product)
        yield gpu_state.get_races


def _product(left, right, *, transposed):
    left, right = left[...], right[...].T if transposed else right[...]
    plgpu.commit_smem()  # a wgmma reads as copies write, and these loads do not
    return jnp.dot(left, right, preferred_element_type=jnp.float32)
