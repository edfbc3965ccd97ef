"""`load`: a model from a directory, a hub id, or the bundled ones."""

from pathlib import Path

from bytelax import checkpoints
from bytelax.model import Model
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM

_ASSETS = Path(__file__).parent / "assets"


def load(location: str | Path, *, dtype: str | None = None, **overrides) -> Model:
    """Loads a model.

    Args:
      location: the name of a bundled model, a directory (Orbax, Hugging Face or Meta layout), or a
        hub id.
      dtype: cast the weights to "float32", "bfloat16" or "float16"; the entropy model stays
        float32. None keeps what the files hold, and makes a bundled model float32.
      **overrides: config fields that a file cannot hold: monotonicity, patching_threshold,
        patching_threshold_add, patching_mode, patching_stride, max_patch_length, mask_documents,
        max_bytes.

    Raises:
      CheckpointError: nothing there, or nothing that can be read; the message says what to do.
    """
    bundled = _ASSETS / str(location)
    source = location
    if bundled.is_dir() and not Path(location).exists():
        source, dtype = bundled, dtype or "float32"  # stored as bfloat16, to be small
    config, params = checkpoints.read(source, dtype=dtype, **overrides)
    module = BLT(config) if isinstance(config, BLTConfig) else ByteLM(config)
    return Model(module, params)
