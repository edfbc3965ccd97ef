"""The table of names beside the parameters of the modules."""

import numpy as np
import pytest

from bytelax import architectures
from bytelax.checkpoints import CheckpointError, layout
from tests.helpers.models_for_tests import BYTE_LMS
from tests.helpers.random_models import BYTE_LM, GROUPED, OWN, SQUARE, random_params


@pytest.mark.parametrize("config", [SQUARE, GROUPED, OWN, BYTE_LM, BYTE_LMS["qwen"]])
def test_the_table_is_the_parameter_tree(config):
    drawn = layout.flatten(architectures.shapes(architectures.module_of(config)))
    expected = {path: x.shape for path, x in drawn.items()}
    assert all(x.dtype == np.float32 for x in drawn.values())
    assert {path: x.shape for path, x in architectures.parameters(config).items()} == expected


def test_parameters_of_another_model_are_refused():
    params = random_params(SQUARE)
    with pytest.raises(CheckpointError, match="has shape"):
        layout.state_dict(GROUPED, random_params(GROUPED) | {"decoder": params["decoder"]})
    with pytest.raises(CheckpointError, match="patcher/embed/embedding is missing"):
        layout.state_dict(SQUARE, {k: v for k, v in params.items() if k != "patcher"})
    with pytest.raises(CheckpointError, match="unexpected parameter extra/x"):
        layout.state_dict(SQUARE, params | {"extra": {"x": np.zeros(2)}})
