"""Every test runs on the CPU, and compiles nothing that an earlier run has compiled."""

import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

CACHE = pathlib.Path(__file__).parents[1] / ".cache" / "jax"

jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
