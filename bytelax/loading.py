"""`load`: a model from a directory, a hub id, or the bundled ones."""

from pathlib import Path

from jax.sharding import Mesh

from bytelax import checkpoints
from bytelax.model import Model
from bytelax.models import architectures
from bytelax.pods import sharding
from bytelax.pods.sharding import MeshConfig

_ASSETS = Path(__file__).parent / "assets"


def load(
    location: str | Path,
    *,
    dtype: str | None = None,
    mesh: MeshConfig | Mesh | None = None,
    **overrides,
) -> Model:
    """Loads a model.

    Args:
      location: the name of a bundled model, a directory (Orbax, Hugging Face or Meta layout), or a
        hub id. A directory of a bundled model's name counts if it holds a config.
      dtype: cast the weights to "float32", "bfloat16" or "float16"; the entropy model stays
        float32. None keeps what the files hold, and makes a bundled model float32.
      mesh: the devices to decode on, by default one. Batches are split over `data` and `fsdp`,
        heads, hidden units and hash embeddings over `tensor`; every process reads its share.
      **overrides: config fields that a file cannot hold: monotonicity, patching_threshold,
        patching_threshold_add, patching_mode, patching_stride, max_patch_length, mask_documents,
        max_bytes.

    Raises:
      ValueError: there are fewer devices than the mesh has, or the model does not divide evenly.
      CheckpointError: nothing there, or nothing that can be read; the message says what to do.
    """
    bundled = _ASSETS / str(location)
    source = location
    if _holds_model(bundled) and not _holds_model(Path(location)):
        source, dtype = bundled, dtype or "float32"  # stored as bfloat16, to be small
    places = None
    if mesh is not None:
        mesh = sharding.make_mesh(mesh) if isinstance(mesh, MeshConfig) else mesh

        def places(config, params):
            axes = architectures.module_of(config).logical_axes()
            return sharding.shardings(params, axes, mesh, sharding.DECODE_RULES)

    config, params = checkpoints.read(source, dtype=dtype, shardings=places, **overrides)
    return Model(architectures.module_of(config), params, mesh)


def _holds_model(path: Path) -> bool:
    """Whether a path is meant where a bundled model has the same name."""
    return any((path / name).exists() for name in ("config.json", "params.json"))
