"""A product and a sum over many rows, as the report of jax-ml/jax#39103 has it."""

import os
import subprocess
import sys

REPORTED = """
import jax, jax.numpy as jnp
from bytelax.long_reductions import compiler_options

rows = 32_769
x = jnp.zeros((rows, 3)).at[:, 0].set(jnp.arange(rows, dtype=jnp.float32))

def last(x):
    return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(x)

print(float(jax.jit(last, compiler_options=compiler_options())(x)[-1]))
"""


def test_the_reported_program_is_right_with_our_options():
    environment = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run(
        [sys.executable, "-c", REPORTED], capture_output=True, text=True, check=True,
        env=environment,
    )  # fmt: skip
    assert float(run.stdout) == 32_768.0**2
