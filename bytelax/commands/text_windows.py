"""Sample text for commands that measure on it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from bytelax.training import documents, packing


def text_windows(
    texts: Sequence[str], window: int, max_bytes: int
) -> tuple[Int[np.ndarray, "B {window}"], Int[np.ndarray, " B"]]:
    """Windows of the texts of each path end to end, evenly spread, and how much of each is text.

    Args:
      texts: files, directories or globs, as `bytelax.training.documents` reads them.
      window: bytes of each; the last one of a path is padded with BOE.
      max_bytes: about so many in all.

    Raises:
      ValueError: a path without text.
    """
    kept = []
    for path in texts:
        train, _ = documents.load(path, valid="", separator="", template="", valid_fraction=0.0)
        if train.ids.size < 2:
            raise ValueError(f"{path}: there is no text in it")
        whole = packing.ValidWindows(train, window)
        kept += [whole[index][:window] for index in range(len(whole))]
    step = max(1, -(-len(kept) * window // max_bytes))
    windows = np.stack(kept[::step])
    return windows, (windows != packing.padding(window)[0]).sum(1)
