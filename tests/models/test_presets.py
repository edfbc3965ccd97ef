"""The configs of published sizes have the parameters that were published."""

import collections
import math

import pytest

from bytelax import architectures
from bytelax.models import presets


def counts(config):
    """Parameters by part, in millions; those of hash tables apart."""
    found = collections.Counter()
    for path, parameter in architectures.parameters(config).items():
        part = "hash" if "hash_embed" in path else path.split("/")[0]
        found[part] += math.prod(parameter.shape) / 1e6
    return found


@pytest.mark.parametrize(
    ("config", "published", "own"),
    [
        (presets.BLT_1B, (1280, 160, 19, 3072), (1284.6, 157.9, 19.4, 3072.0)),
        (presets.BLT_3B, (2820, 160, 26, 3072), (2831.3, 163.1, 20.5, 3072.0)),
        (presets.BLT_8B, (6480, 180, 33, 3840), (6497.2, 182.6, 33.8, 3840.0)),
    ],
)
def test_parameters_of_blt(config, published, own):
    found = counts(config)
    parts = ("global_transformer", "decoder", "encoder", "hash")
    assert [found[part] for part in parts] == pytest.approx(own, abs=0.06)
    assert found["patcher"] == pytest.approx(99.5, abs=0.05)
    for part, count, wanted in zip(parts, own, published, strict=True):
        if (config, part) != (presets.BLT_3B, "encoder"):
            close = 0.005 if part == "global_transformer" else 0.03
            assert count == pytest.approx(wanted, rel=close), part


def test_parameters_of_byte_transformers():
    assert sum(counts(presets.BYTE_LM_85M).values()) == pytest.approx(85.35, abs=0.05)
    assert sum(counts(presets.BYTE_LM_800M).values()) == pytest.approx(810.6, abs=0.5)
    assert sum(counts(presets.BYTE_LM_LAPTOP).values()) == pytest.approx(3.15, abs=0.005)
    assert sum(counts(presets.ENTROPY_LAPTOP).values()) == pytest.approx(0.27, abs=0.005)


@pytest.mark.parametrize(
    ("config", "own"),
    [
        (presets.BLT_LAPTOP, (4.82, 0.97, 0.345, 1.566)),
        (presets.BLT_100M, (85.74, 17.97, 4.92, 61.47)),
    ],
)
def test_parameters_of_smaller_blts(config, own):
    found = counts(config)
    parts = ("global_transformer", "decoder", "encoder", "hash")
    assert [found[part] for part in parts] == pytest.approx(own, abs=0.06 if own[0] > 10 else 0.006)
