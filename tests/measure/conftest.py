"""What the tests of measuring commands share."""

import pytest

from tests.helpers import models_for_tests as models


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Where a small byte transformer lies."""
    return models.saved(models.model(models.BYTE_LM), tmp_path_factory.mktemp("measure") / "model")
