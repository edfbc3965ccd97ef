"""Exactness at XLA's default level of optimisation, in processes of their own."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.at_the_defaults import BITWISE, LAWS

SCRIPT = pathlib.Path(__file__).with_name("at_the_defaults.py")


def _all_but(cases, more):
    return [
        pytest.param(each, marks=pytest.mark.exhaustive if each in more else ()) for each in cases
    ]


def measured(case):
    environment = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run(
        [sys.executable, str(SCRIPT), case],
        capture_output=True,
        text=True,
        check=True,
        env=environment | {"JAX_NUM_CPU_DEVICES": "1"},
    )
    return json.loads(run.stdout)


@pytest.mark.slow  # 10 to 60 s each
@pytest.mark.parametrize("method", _all_but(BITWISE, ("draft-model", "medusa", "lookup", "blt-s")))
def test_methods_are_plain_decoding_bit_for_bit(method):
    found = measured(method)
    assert found["differ"] == 0
    assert found["accepted"] > 0


@pytest.mark.slow  # a minute each
@pytest.mark.parametrize("case", _all_but(LAWS, ("law-blt-s", "law-medusa")))
def test_sampled_bytes_have_the_law_of_the_model(case):
    """27 possible texts; a right sampler fails one run in 10,000 such cases."""
    found = measured(case)
    assert found["impossible"] == 0 and found["p"] > 1e-4
