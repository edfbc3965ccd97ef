"""Configs as plain data and back, and what is said of those that are none."""

import dataclasses
import math

import pytest

from bytelax.checkpoints import CheckpointError, config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    size: int = 1
    rate: float = 0.5
    groups: tuple[int, ...] = (3, 4)
    three: tuple[int, int, int] | None = None

    def __post_init__(self):
        if self.size < 0:
            raise ValueError(f"size must not be negative, got {self.size}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner = Inner()
    maybe: Inner | None = None
    switch: bool = False


def test_there_and_back():
    whole = Outer(name="x", inner=Inner(three=(1, 2, 3)), maybe=Inner(rate=2.0))
    fields = config.to_fields(whole)
    assert fields["inner"]["three"] == [1, 2, 3] and fields["inner"]["groups"] == [3, 4]
    assert config.from_fields(Outer, fields, "file") == whole
    assert config.from_fields(Outer, {"name": "x", "inner": {"rate": 2}}, "file").inner.rate == 2.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": None}, "file: name is None where text belongs"),
        ({"inner": []}, "file: inner is [] where an object belongs"),
        ({"inner": {"size": 1.0}}, "file: inner.size is 1.0 where a whole number belongs"),
        ({"inner": {"size": True}}, "file: inner.size is True where a whole number belongs"),
        ({"inner": {"size": -1}}, "file: inner: size must not be negative, got -1"),
        ({"inner": {"rate": math.nan}}, "file: inner.rate must be finite, got nan"),
        ({"inner": {"groups": "34"}}, "file: inner.groups is '34' where a list belongs"),
        ({"inner": {"groups": [3, "4"]}}, "inner.groups is '4' where a whole number belongs"),
        ({"maybe": {"three": [1, 2]}}, "file: maybe.three has 2 entries, not 3"),
        ({"maybe": {"sizes": 1}}, "file: there is an unknown field 'maybe.sizes'"),
        ({"switch": 1}, "file: switch is 1 where true or false belongs"),
    ],
)
def test_a_value_is_refused_by_the_name_of_its_field(change, says):
    with pytest.raises(CheckpointError) as error:
        config.from_fields(Outer, {"name": "x"} | change, "file")
    assert says in str(error.value) and "\n" not in str(error.value)


def test_what_is_missing_and_what_is_no_object():
    with pytest.raises(CheckpointError, match="file: the field name is missing"):
        config.from_fields(Outer, {}, "file")
    with pytest.raises(CheckpointError, match="file: is None where an object belongs"):
        config.from_fields(Outer, None, "file")


def test_files_of_others_may_say_more():
    assert config.known_fields(Outer, {"name": "x", "more": [1]}, "file") == Outer(name="x")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", "5", "[]", '"\ud800"'])
def test_what_is_no_json_object(text, tmp_path):
    (tmp_path / "file").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(CheckpointError, match="download or write it again"):
        config.read_json(tmp_path / "file")
