"""Every API of Orbax reads a directory of ours, at the place that docs/checkpoints.md names."""

import jax
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from bytelax import checkpoints
from tests.helpers.random_models import BYTE_LM, assert_same, random_params, shapes

PARAMS = random_params(BYTE_LM)


@pytest.fixture(scope="module")
def parameters(tmp_path_factory):
    directory = tmp_path_factory.mktemp("orbax") / "a"
    checkpoints.write(directory, BYTE_LM, PARAMS, layout="orbax")
    return directory / "parameters"


def abstract():
    """What to read, and onto which device."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), shapes(BYTE_LM)
    )


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_the_present_api_reads_parameters(parameters):
    assert_same(v1.load(parameters), PARAMS)
    assert_same(v1.load(parameters, abstract()), PARAMS)


@pytest.mark.parametrize("checkpointer", [ocp.StandardCheckpointer, ocp.PyTreeCheckpointer])
@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_the_former_api_reads_the_state_within(checkpointer, parameters):
    with pytest.raises(FileNotFoundError):
        checkpointer().restore(parameters)
    assert_same(checkpointer().restore(parameters / "state"), PARAMS)


def test_the_former_api_reads_onto_given_devices(parameters):
    assert_same(ocp.StandardCheckpointer().restore(parameters / "state", abstract()), PARAMS)


def test_the_former_api_reads_the_item_state(parameters):
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        how = ocp.args.Composite(state=ocp.args.StandardRestore(abstract()))
        assert_same(checkpointer.restore(parameters, args=how)["state"], PARAMS)
