"""Windows of sample text to measure on."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from bytelax.training import documents, packing


def text_windows(
    texts: Sequence[str], window: int, max_bytes: int
) -> tuple[Int[np.ndarray, "B {window}"], Int[np.ndarray, " B"]]:
    """Cuts text into windows, and returns an evenly spread sample of them and their lengths.

    The documents of each path are concatenated.

    Args:
      texts: files, directories or globs, as `bytelax.training.documents` reads them.
      window: number of ids in a window; the last window of a path is padded with BOE.
      max_bytes: approximate total number of bytes.

    Raises:
      ValueError: there is no path, or a path has no text.
    """
    if not texts:
        raise ValueError("no text is named: give a file, a directory or a pattern")
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
