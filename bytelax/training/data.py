"""Batches for training and validation: windows of text files, mixed, shuffled and resumable."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import grain
import numpy as np
from jaxtyping import Int, Int32
from tyro.constructors import PrimitiveConstructorSpec

from bytelax.training import documents, packing
from bytelax.training.documents import DataError, Documents, Source

Split = Literal["train", "valid"]

# tyro cannot take a tuple of dataclasses apart: on a command line a source is one argument.
_SOURCE_ARGUMENTS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="'PATH [weight=..] [valid=..] [separator=..] [template=..]' ..",
    instance_from_str=lambda arguments: tuple(map(Source.parse, arguments)),
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda sources: list(map(str, sources)),
)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What to train on, in what pieces and in what order."""

    sources: Annotated[tuple[Source, ...], _SOURCE_ARGUMENTS] = ()
    """Text to train on: files, directories or globs of .txt, .py, .jsonl or .tsv, plain or .gz."""
    window: int = 1024
    """Targets in an example, which has one id more."""
    batch: int = 32
    """Examples in a step, of all processes together."""
    seed: int = 0
    """Of the order of documents and windows."""
    valid_fraction: float = 0.01
    """Share of documents held out for validation, of sources without files for it."""
    prefetch: int = 4
    """Batches that a thread reads ahead; 0 reads when asked."""

    def __post_init__(self):
        for name, least in (("window", 1), ("batch", 1), ("prefetch", 0)):
            if getattr(self, name) < least:
                raise DataError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.valid_fraction < 1:
            raise DataError(f"valid_fraction must be in [0, 1), not {self.valid_fraction}")


class Batch(NamedTuple):
    """A process's examples of one step.

    Attributes:
      ids: inputs are `[:, :-1]`, targets `[:, 1:]`. A target BOE (0) is padding, which only the
        last windows of a validation have.
      index: how many examples all processes together have taken, this step included: the `start`
        that goes on after it.
    """

    ids: Int32[np.ndarray, "B N+1"]
    index: int


def examples(config: DataConfig, split: Split) -> grain.MapDataset:
    """All examples of a split by their global index: windows i32[N + 1].

    Those to train on never end, are drawn from the sources by weight, and each source has epochs
    of its own. Those to validate on are the windows of each source once, in order.

    Raises:
      DataError: the sources cannot be read, or hold too little.
    """
    if not config.sources:
        raise DataError("no text to train on: give at least one source")
    corpora = [_documents(source, config, split) for source in config.sources]
    if split == "valid":
        windows = [packing.ValidWindows(corpus, config.window) for corpus in corpora]
        if not any(map(len, windows)):
            raise DataError(
                "no document is held out: raise valid_fraction, or name files in a source's valid"
            )
        return grain.MapDataset.concatenate(
            [grain.MapDataset.source(source) for source in windows if len(source)]
        )
    for source, corpus in zip(config.sources, corpora, strict=True):
        _check_size(source, corpus, config.window)
    windows = [
        packing.TrainWindows(corpus, config.window, (config.seed, place))
        for place, corpus in enumerate(corpora)
    ]
    return grain.MapDataset.mix(
        [grain.MapDataset.source(source) for source in windows],
        [source.weight for source in config.sources],
    )


def batches(
    config: DataConfig,
    *,
    split: Split,
    start: int = 0,
    rows: Int[np.ndarray, " R"] | None = None,
) -> Iterator[Batch]:
    """The batches of one process from global example `start` on.

    A step takes the next `config.batch` examples: example `start + r` is row r of the first batch,
    whichever process has that row. So the steps of a run are the same for any number of processes,
    and a run goes on from `Batch.index` with another number of them, at no cost in `start`.
    Training batches never end. The last validation batch is filled with padding.

    Args:
      config: what of.
      split: which part.
      start: examples that were taken before.
      rows: those of each batch that this process takes, by `global_arrays.rows_here`; None: all.

    Raises:
      DataError: the sources cannot be read or hold too little, or a batch has no such row.
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
    return _numbered(own.to_iter_dataset(options), start, config.batch)


class _Rows:
    """Some rows of each batch of a dataset."""

    def __init__(self, dataset: grain.MapDataset, rows: list[int], batch: int):
        self._dataset, self._rows, self._batch = dataset, rows, batch

    def __len__(self) -> int:
        return len(self._dataset) // self._batch * len(self._rows)

    def __getitem__(self, index: int) -> np.ndarray:
        step, place = divmod(index, len(self._rows))
        return self._dataset[step * self._batch + self._rows[place]]


def _numbered(dataset: grain.IterDataset, start: int, step: int) -> Iterator[Batch]:
    for ids in dataset:
        start += step
        yield Batch(ids, start)


def _documents(source: Source, config: DataConfig, split: Split) -> Documents:
    train, valid = documents.load(
        source.path,
        valid=source.valid,
        separator=source.separator,
        template=source.template,
        valid_fraction=config.valid_fraction,
    )
    return valid if split == "valid" else train


def _check_size(source: Source, corpus: Documents, window: int) -> None:
    if not corpus.ids.size:
        raise DataError(f"{source.path}: no text to train on")
    if not packing.full_windows(corpus.ids.size, window):
        raise DataError(
            f"{source.path}: {corpus.ids.size} ids to train on do not fill a window of {window} + 1"
        )
