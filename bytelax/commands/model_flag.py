"""The flag that names a model, the same in all commands."""

from typing import Annotated

import tyro

ModelFlag = Annotated[
    str,
    tyro.conf.arg(
        help="The model: a bundled one (tiny, ...), a directory with a checkpoint, a training run, "
        "or a name on the hub."
    ),
]
