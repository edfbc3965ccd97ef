"""A product and a sum over many rows, as the report of jax-ml/jax#39103 has it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

REPORTED = """
import jax, jax.numpy as jnp
from bytelax.long_reductions import compiler_options

rows = 32_769
x = jnp.zeros((rows, 3)).at[:, 0].set(jnp.arange(rows, dtype=jnp.float32))

def last(x):
    return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(x)

print(float(jax.jit(last, compiler_options=compiler_options())(x)[-1]))
"""


def printed(*arguments):
    """What Python prints where XLA optimises as it does for users."""
    environment = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True,
        env=environment | {"JAX_NUM_CPU_DEVICES": "1"},
    )  # fmt: skip
    return run.stdout


def test_the_reported_program_is_right_with_our_options():
    assert float(printed("-c", REPORTED)) == 32_768.0**2


@pytest.mark.slow  # 20 s
def test_training_validation_and_scoring_have_our_options(tmp_path):
    script = pathlib.Path(__file__).parent / "training" / "long_sums.py"
    found = json.loads(printed(str(script), str(tmp_path / "run")).splitlines()[-1])
    assert found == dict.fromkeys(("1 train", "2 train", "3 train", "3 valid", "scored"), 0.0)
