"""Every test runs on the CPU, and compiles nothing that an earlier run has compiled.

Programs are tiny, so nearly all the time goes into compiling: XLA is told to optimise little, which
is three times faster, and to make one piece of each program. No guarantee that is tested may hang
on optimisations.
"""

import collections
import gc
import importlib.metadata
import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")  # for the tests of meshes; others take the first
_QUICK = "--xla_backend_optimization_level=0"
if importlib.metadata.version("jaxlib").startswith("0.10."):  # newer ones do not know the flags
    _QUICK += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
# Simulated kernels call back into JAX, which takes a second thread while the first one waits. XLA
# makes one a core that this process may use, or as many as it is told.
if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:
    os.environ.setdefault("NPROC", "2")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK}".strip()

import hypothesis  # noqa: E402
import jax  # noqa: E402 (after the environment that it reads)
import pytest  # noqa: E402
import typechecking  # noqa: E402

typechecking.install()  # before anything imports the library

CACHE = pathlib.Path(__file__).parents[1] / ".cache" / "jax"

jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hypothesis.settings.register_profile("tests", deadline=None)  # others may use the machine
hypothesis.settings.load_profile("tests")


def pytest_collection_modifyitems(items):
    """The modules with the most slow tests first, so that workers end at about the same time."""
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish():
    """Tracing makes many objects: Python looks through them less often, and not through all."""
    gc.freeze()
    gc.set_threshold(100_000)


@pytest.fixture(autouse=True, scope="module")
def programs_of_one_module():
    """Those of the whole suite would need more memory maps than a process may have."""
    yield
    jax.clear_caches()
