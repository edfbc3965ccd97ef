"""Formats results for `--json`."""

import json
import math
from typing import Any


def json_line(value: Any) -> str:
    """Formats a value as one line of JSON; NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_finite(value), allow_nan=False)


def check_json(flags: Any, name: str) -> None:
    """Raises a ValueError if the flag of this name is given without `--json`."""
    if getattr(flags, name) and not flags.json:
        raise ValueError(f"--{name} is printed as JSON only: add --json")


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
