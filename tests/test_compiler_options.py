"""A product and a sum over many rows, as the report of jax-ml/jax#39103 has it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

REPORTED = """
import jax, jax.numpy as jnp
from bytelax.compiling import compiler_options

rows = 32_769
x = jnp.zeros((rows, 3)).at[:, 0].set(jnp.arange(rows, dtype=jnp.float32))

def last(x):
    return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(x)

print(float(jax.jit(last, compiler_options=compiler_options())(x)[-1]))
"""

# YNNPACK adds up the last layer otherwise when its states are an output too.
KEPT_STATES = """
import numpy as np
import bytelax

model = bytelax.load("tiny-lm", dtype="float32")
prompts = np.random.default_rng(0).integers(32, 127, (32, 128)).astype(np.uint8)
how = dict(max_new_bytes=4, window=9, logprobs=True, allow_eos=False)

def log_probs(method):
    out = bytelax.generate(model, [bytes(row) for row in prompts], method=method, **how)
    return np.stack([result.log_probs for result in out.results])

print(np.abs(log_probs("medusa") - log_probs("ar")).max())
"""


def printed(*arguments):
    """What Python prints where XLA optimises as it does for users."""
    environment = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=pathlib.Path(__file__).parents[1],
        env=environment | {"JAX_NUM_CPU_DEVICES": "1"},
    )
    return run.stdout


@pytest.mark.slow
def test_the_reported_program_is_right_with_our_options():
    assert float(printed("-c", REPORTED)) == 32_768.0**2


@pytest.mark.slow  # 20 s
def test_training_validation_and_scoring_have_our_options(tmp_path):
    script = "tests.training.long_sums"
    found = json.loads(printed("-m", script, str(tmp_path / "run")).splitlines()[-1])
    assert found == dict.fromkeys(("1 train", "2 train", "3 train", "3 valid", "scored"), 0.0)


@pytest.mark.slow  # 20 s
def test_a_prompt_is_read_the_same_whether_its_states_are_kept():
    assert float(printed("-c", KEPT_STATES)) == 0
