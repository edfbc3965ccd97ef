"""Config files of training runs with one thing wrong: accepted, or refused in one line."""

import json
import math
import pathlib
import random

import pytest

from bytelax.checkpoints import config as plain
from bytelax.commands import train

VALUES = (
    True, 0, 1, -1, 3, 2**31, -(2**40), 10**12, 0.5, -0.5, 1e300, math.nan, math.inf, "", "x", "16",
    "NaN", "None", [], [1], [[1]], [0, -3], ["3"], {}, {"a": 1}, {"layers": 1},
)  # fmt: skip


def places(fields, prefix=()):
    """Every key of a nested dict, as a path."""
    for name, value in fields.items():
        yield (*prefix, name)
        if isinstance(value, dict):
            yield from places(value, (*prefix, name))


def mutations(fields):
    """The fields with one value replaced, left out or renamed."""
    for path in places(fields):
        for value in (*VALUES, "left out", "renamed"):
            changed = json.loads(json.dumps(fields))
            holder = changed
            for name in path[:-1]:
                holder = holder[name]
            if value == "left out":
                del holder[path[-1]]
            elif value == "renamed":
                holder[f"{path[-1]}_x"] = holder.pop(path[-1])
            else:
                holder[path[-1]] = value
            yield path, value, changed


def outcome(kind, fields, directory):
    """Reads a file as `--config` does; returns the message if it is refused."""
    path = directory / "config.toml"
    path.write_text(plain.to_toml(fields))
    try:
        train.default(kind, ["--config", str(path), "--out", str(directory / "out")])
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", train.KINDS)
@pytest.mark.parametrize(
    "share",
    [
        0.02,
        pytest.param(0.1, marks=pytest.mark.slow),
        pytest.param(1.0, marks=pytest.mark.exhaustive),
    ],
)
def test_a_changed_config_is_accepted_or_refused_in_one_line(kind, share, tmp_path):
    fields = train.to_fields(train.KINDS[kind](out=pathlib.Path("out")))
    tried = list(mutations(fields))
    chosen = random.Random(0).sample(tried, round(share * len(tried)))
    refused = 0
    for path, value, changed in chosen:
        told = outcome(kind, changed, tmp_path)
        refused += told is not None
        assert told is None or "\n" not in told, (path, value, told)
    assert 0 < refused < len(chosen)


def test_deep_and_broken_files_are_refused(tmp_path):
    path = tmp_path / "config.toml"
    for text in (
        "a = [" * 5000,
        "a.b" * 9 + " = ",
        "\x00",
        "x = " + "9" * 5000,
        "[model]\ntrunk = 5",
    ):
        path.write_text(text)
        with pytest.raises(ValueError) as told:
            train.default("entropy", ["--config", str(path), "--out", str(tmp_path)])
        assert "\n" not in str(told.value)
