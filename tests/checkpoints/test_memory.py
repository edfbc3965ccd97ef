"""Loading holds little more than what it loads."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from bytelax import architectures
from bytelax.checkpoints import layout
from bytelax.models.blt.encoder import HashConfig
from tests.helpers import meta_layout
from tests.helpers.random_models import META, stack

MEASURE = """
import sys
import jax
from bytelax import checkpoints

def kilobytes(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))

jax.block_until_ready(jax.numpy.zeros(1))
before = kilobytes("VmRSS")
_, params = checkpoints.read(sys.argv[1])
jax.block_until_ready(params)
print((kilobytes("VmHWM") - before) << 10)
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
@pytest.mark.parametrize("name", ["huggingface", "meta"])
def test_peak_memory_is_about_the_size_of_the_file(name, tmp_path):
    config = dataclasses.replace(
        META,
        encoder=stack(256, 1, 704),
        global_transformer=stack(512, 8, 1536),
        decoder=stack(256, 2, 704),
        hashing=HashConfig(vocab=20_000),
    )
    rng = np.random.default_rng(0)
    params = {
        path: rng.standard_normal(parameter.shape, np.float32)
        for path, parameter in architectures.parameters(config).items()
    }
    meta_layout.write(tmp_path / "a", config, layout.unflatten(params), layout=name)
    size = sum(file.stat().st_size for file in (tmp_path / "a").rglob("*") if file.is_file())
    assert size > 200e6
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert int(run.stdout) < 1.3 * size
