"""`bytelax train --preset laptop | 100m | 1b`: sizes of a run, as default values of its flags."""

import dataclasses
from typing import Any

from bytelax.models import presets
from bytelax.models.configs import BLTConfig, BLTSizes
from bytelax.training.configs import DataConfig, OptimizerConfig, RunConfig

# Data, optimizer and run of a preset.
_RUNS: dict[str, dict[str, Any]] = {
    "laptop": {
        "data": DataConfig(window=256, batch=8),
        "optimizer": OptimizerConfig(
            name="muon", steps=600, peak=3e-3, muon_peak=0.012, weight_decay=0.05
        ),
        "run": RunConfig(validate_every=100),
    },
    "100m": {
        "data": DataConfig(window=2048, batch=128),
        "optimizer": OptimizerConfig(steps=20_000, warmup=1000),
        "run": RunConfig(dtype="bfloat16", remat=True, scan=True),
    },
    "1b": {
        "data": DataConfig(window=4096, batch=512),
        "optimizer": OptimizerConfig(steps=50_000, warmup=2000),
        "run": RunConfig(dtype="bfloat16", remat=True, scan=True),
    },
}
_BYTE_LMS = {
    "laptop": presets.BYTE_LM_LAPTOP,
    "100m": presets.BYTE_LM_85M,
    "1b": presets.BYTE_LM_800M,
}
# The 1B BLT as released has the entropy model of 100M parameters.
_ENTROPY_MODELS = {
    "laptop": presets.ENTROPY_LAPTOP,
    "100m": presets.ENTROPY_100M,
    "1b": presets.ENTROPY_100M,
}
_BLTS = {"laptop": presets.BLT_LAPTOP, "100m": presets.BLT_100M, "1b": presets.BLT_1B}


def of(kind: str, preset: str) -> dict[str, Any]:
    """Returns the fields of a kind of run that a preset sets; none if it is empty.

    Raises:
      ValueError: there is no such preset for this kind.
    """
    if not preset:
        return {}
    if preset not in _RUNS:
        raise ValueError(f"--preset {preset} is not one of {', '.join(_RUNS)}")
    if kind == "heads":
        raise ValueError("--preset is not for heads, which have the sizes of the model in --init")
    run = {"preset": preset} | _RUNS[preset]
    if kind == "byte-lm":
        return run | {"model": _BYTE_LMS[preset]}
    if kind == "entropy":
        return run | {"model": _ENTROPY_MODELS[preset]}
    run |= {"model": _sizes(_BLTS[preset], joint=kind == "blt-d")}
    if preset == "laptop":  # whose threshold is that of the bundled entropy model
        run |= {"patcher": "tiny"}
    return run


def _sizes(config: BLTConfig, *, joint: bool) -> BLTSizes:
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(BLTSizes)}
    sizes = BLTSizes(**fields)
    return dataclasses.replace(sizes, decoder_input="embedding") if joint else sizes
