"""While tests run, what the library takes and returns is checked against its annotations."""

import jax.numpy as jnp
import pytest
from beartype.roar import BeartypeCallHintParamViolation, BeartypeCallHintReturnViolation

from bytelax.models import patching

RULE = patching.PatchingConfig()


def texts(rows, width, dtype):
    return jnp.zeros((rows, width), dtype)


@pytest.mark.parametrize(
    ("entropies", "positions"),
    [
        ((2, 3, "float32"), (2, 3, "float32")),  # positions are integers
        ((2, 3, "float32"), (2, 4, "int32")),  # and as many as entropies
    ],
)
def test_arguments(entropies, positions):
    window = texts(*entropies), texts(*positions)
    with pytest.raises(BeartypeCallHintParamViolation):
        patching.open_patches(patching.no_patch(2), *window, config=RULE)


def test_results():
    window = texts(2, 3, "float32"), texts(2, 3, "int32")
    opened = patching.open_patches(patching.no_patch(2), *window, config=RULE)
    assert patching.closing(opened, window[1]).shape == (2, 3)
    with pytest.raises(BeartypeCallHintReturnViolation):  # results are of two rows
        patching.closing(opened, window[1][:1])
