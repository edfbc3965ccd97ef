"""What the tests of measuring commands share."""

import pytest

from bytelax import checkpoints
from tests.helpers import models_for_tests as models


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Where a small byte transformer lies."""
    path = tmp_path_factory.mktemp("measure") / "model"
    small = models.model(models.BYTE_LM)
    checkpoints.write(path, small.config, small.params, layout="huggingface")
    return str(path)
