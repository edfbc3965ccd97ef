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

# tyro cannot parse a tuple of dataclasses, so each source is one argument on the command line.
_SOURCE_ARGUMENTS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="'PATH [weight=..] [valid=..] [separator=..] [template=..]' ..",
    instance_from_str=lambda arguments: tuple(map(Source.parse, arguments)),
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda sources: list(map(str, sources)),
)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Training text, and how it is divided into windows and batches."""

    sources: Annotated[tuple[Source, ...], _SOURCE_ARGUMENTS] = ()
    """Text to train on: files, directories or globs of .txt, .py, .jsonl or .tsv, plain or .gz."""
    window: int = 1024
    """Number of targets in an example, which has one more id than that."""
    batch: int = 32
    """Number of examples in a step, over all processes."""
    seed: int = 0
    """Seed of the order of documents and windows."""
    valid_fraction: float = 0.01
    """Share of documents held out for validation, in sources that name no files for it."""
    prefetch: int = 4
    """Number of batches that a thread reads ahead; 0 reads each batch when it is needed."""

    def __post_init__(self):
        for name, least in (("window", 1), ("batch", 1), ("prefetch", 0)):
            if getattr(self, name) < least:
                raise DataError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.valid_fraction < 1:
            raise DataError(f"valid_fraction must be in [0, 1), not {self.valid_fraction}")


class Batch(NamedTuple):
    """The examples of one process in one step.

    Attributes:
      ids: inputs are `[:, :-1]` and targets are `[:, 1:]`. A target BOE (0) is padding, which
        occurs only in the last windows of the validation split.
      index: number of examples that all processes have taken up to and including this step. Pass
        it as `start` to continue after this step.
    """

    ids: Int32[np.ndarray, "B N+1"]
    index: int  # type: ignore[assignment]  # hides `tuple.index`


def examples(config: DataConfig, split: Split) -> grain.MapDataset:
    """All examples of a split, indexed globally; an example is a window i32[N + 1].

    Training examples never end. They are sampled from the sources by weight, and each source has
    its own epochs. Validation examples are the windows of each source once, in order.

    Raises:
      DataError: the sources cannot be read, or hold too little text.
    """
    if not config.sources:
        raise DataError("no text to train on: give at least one source")
    corpora = [_documents(source, config, split) for source in config.sources]
    if split == "valid":
        held_out = [packing.ValidWindows(corpus, config.window) for corpus in corpora]
        if not any(map(len, held_out)):
            raise DataError(
                "no document is held out: raise valid_fraction, or name files in a source's valid"
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
    """Iterates over the batches of one process, starting at global example `start`.

    Each step takes the next `config.batch` examples: example `start + r` is row r of the first
    batch, whichever process holds that row. The batches therefore do not depend on the number of
    processes, and a run may resume from `Batch.index` with another number of them. The time to
    resume does not depend on `start`. Training batches never end. The last validation batch is
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
    return _numbered(own.to_iter_dataset(options), start, config.batch)


class _Rows:
    """Selects the same rows from every batch of a dataset, as a random-access source for Grain."""

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
