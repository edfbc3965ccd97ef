"""Values of configs and options, checked by the types of their fields."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bytelax.checked import Checked


@dataclasses.dataclass(frozen=True)
class Own(Checked):
    """Fields of all kinds of types."""

    depths: tuple[int, ...] = ()
    share: float = 0.5
    tied: bool = False
    anything: Any = None
    rule: Callable[[int], int] | None = None
    table: dict[str, int] | None = None


def test_lists_are_kept_as_tuples():
    held = Own(depths=[1, 2])
    assert held.depths == (1, 2) and hash(held) == hash(Own(depths=(1, 2)))


def test_numbers_of_numpy_are_numbers():
    held = Own(depths=(np.int32(3),), share=np.float32(0.25), tied=np.True_)
    assert held.depths == (3,) and held.share == 0.25 and held.tied


def test_types_with_parameters_are_left_to_their_owner():
    Own(anything=[1, "a"], rule=abs, table={"a": 1})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"depths": [1.5]}, r"depths is a list of whole numbers, got \[1.5\]"),
        ({"share": True}, "share is a number, got True"),
        ({"tied": 1}, "tied is True or False, got 1"),
    ],
)
def test_a_value_of_another_type_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        Own(**value)
