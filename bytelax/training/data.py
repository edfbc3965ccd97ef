"""Batches for training and validation: windows of text files, mixed, shuffled and resumable."""

from collections.abc import Iterator
from typing import Literal

import grain
import numpy as np
from jaxtyping import Int, Int32

from bytelax.training import documents, packed, packing
from bytelax.training.configs import DataConfig, DataError, Source
from bytelax.training.documents import Documents

Split = Literal["train", "valid"]


def examples(config: DataConfig, split: Split) -> grain.MapDataset:
    """All examples of a split, indexed globally; an example is a window i32[N + 1].

    Training examples never end. They are sampled from the sources by weight, and each source has
    its own epochs. Validation examples are the windows of each source once, in order.

    Raises:
      DataError: the sources cannot be read, or hold too little text.
    """
    if not config.sources:
        raise DataError("there is no text to train on: name some with --data")
    corpora = [_documents(source, config, split) for source in config.sources]
    if split == "valid":
        held_out = [packing.ValidWindows(corpus, config.window) for corpus in corpora]
        if not any(map(len, held_out)):
            raise DataError(
                "no text is held out: raise data.valid_fraction, name files by valid= in --data, "
                "or set run.validate_every to 0"
            )
        return grain.MapDataset.concatenate(
            [grain.MapDataset.source(source) for source in held_out if len(source)]
        )
    for source, corpus in zip(config.sources, corpora, strict=True):
        _check_size(source, corpus, config.window)
    windows = [
        packing.TrainWindows(corpus, config.window, (config.seed, place))
        for place, corpus in enumerate(corpora)
    ]
    endless = grain.MapDataset.mix(
        [grain.MapDataset.source(source) for source in windows],
        [source.weight for source in config.sources],
    )
    return endless[: 1 << 53]  # Grain computes the number of batches in float64


def batches(
    config: DataConfig,
    *,
    split: Split,
    start: int = 0,
    rows: Int[np.ndarray, " R"] | None = None,
) -> Iterator[Int32[np.ndarray, "B N+1"]]:
    """Iterates over the batches of ids of one process, starting at global example `start`.

    Inputs are `[:, :-1]` and targets are `[:, 1:]`. A target BOE (0) is padding, which occurs only
    in the last windows of the validation split.

    Each step takes the next `config.batch` examples: example `start + r` is row r of the first
    batch, whichever process holds that row. The batches therefore do not depend on the number of
    processes, and a run may resume with another number of them. The time to resume does not depend
    on `start`. Training batches never end. The last validation batch is
    padded.

    Args:
      config: the data.
      split: which split.
      start: number of examples taken before.
      rows: rows of each batch that this process takes, from `global_arrays.rows_here`. None takes
        all rows.

    Raises:
      DataError: the sources cannot be read, or hold too little text, or `rows` are out of range.
    """
    rows = np.arange(config.batch) if rows is None else rows
    for row in rows[(rows < 0) | (rows >= config.batch)]:
        raise DataError(f"a batch of {config.batch} has no row {row}")
    if start < 0:
        raise DataError(f"start must not be negative: {start}")
    ahead = examples(config, split)[start:]
    if split == "valid":
        missing = [packing.padding(config.window)] * (-len(ahead) % config.batch)
        ahead = grain.MapDataset.concatenate([ahead, grain.MapDataset.source(missing)])
    own = ahead
    if len(rows) < config.batch:
        own = grain.MapDataset.source(_Rows(ahead, rows.tolist(), config.batch))
    own = own.batch(len(rows))
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=config.prefetch)
    return iter(own.to_iter_dataset(options))


class _Rows:
    """Selects the same rows from every batch of a dataset, as a random-access source for Grain."""

    def __init__(self, dataset: grain.MapDataset, rows: list[int], batch: int):
        self._dataset, self._rows, self._batch = dataset, rows, batch

    def __len__(self) -> int:
        return len(self._dataset) // self._batch * len(self._rows)

    def __getitem__(self, index: int) -> np.ndarray:
        step, place = divmod(index, len(self._rows))
        return self._dataset[step * self._batch + self._rows[place]]


def _documents(source: Source, config: DataConfig, split: Split) -> Documents:
    if packed.is_packed(source.path):
        if source.valid or source.separator:
            raise DataError(f"{source.path} is packed: give valid= and separator= to bytelax pack")
        return packed.read(source.path)[split == "valid"]
    return documents.load(source, config.valid_fraction)[split == "valid"]


def _check_size(source: Source, corpus: Documents, window: int) -> None:
    if not corpus.ids.size:
        raise DataError(f"{source.path}: no text to train on")
    if not packing.full_windows(corpus.ids.size, window):
        raise DataError(
            f"{source.path}: {corpus.bytes:,} bytes to train on do not fill a window of "
            f"{window:,}; lower --data.window"
        )
