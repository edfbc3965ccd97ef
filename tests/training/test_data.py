"""Batches: mixed by weight, the same for any number of processes, resumable at any example."""

import dataclasses
import gzip
import hashlib
import itertools
import threading
import time

import numpy as np
import pytest
import tyro
from hypothesis import given, settings
from hypothesis import strategies as st

from bytelax import vocab
from bytelax.training import data, packing
from bytelax.training.configs import DataError, Source
from bytelax.training.data import DataConfig


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Three sources, told apart by their bytes: a to h, i to p, q to x."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    for name, first in (("a", 97), ("b", 105), ("c", 113)):
        texts = [
            bytes(rng.integers(first, first + 8, rng.integers(1, 400)).astype(np.uint8).tolist())
            for _ in range(60)
        ]
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(b"\n\n\n".join(texts)))
    sources = tuple(
        Source(str(folder / f"{name}.txt.gz"), weight=weight, separator=r"\n{3,}")
        for name, weight in (("a", 1.0), ("b", 2.5), ("c", 0.5))
    )
    return DataConfig(sources, window=32, batch=8, valid_fraction=0.2)


def take(config, steps, **where):
    """The ids of the first steps, [steps, rows, N + 1]."""
    batches = data.batches(config, split="train", **where)
    return np.stack(list(itertools.islice(batches, steps)))


def source_of(ids):
    """Which of the sources of `config` a window is from."""
    letters = ids[ids >= vocab.OFFSET] - vocab.OFFSET
    (source,) = set(((letters - 97) // 8).tolist())
    return source


def test_the_same_config_gives_the_same_batches(config):
    again = dataclasses.replace(config, prefetch=0)
    np.testing.assert_array_equal(take(config, 40), take(again, 40))


def test_another_seed_gives_other_batches(config):
    other = dataclasses.replace(config, seed=1)
    one, two = (set(map(bytes, take(c, 20).reshape(-1, 33))) for c in (config, other))
    assert len(one & two) < len(one) // 10


def test_the_order_never_changes(tmp_path):
    """A checkpoint is a position in this order; a new release of a library must not move it."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{i:04} " for i in range(200)))
    sources = tuple(Source(str(tmp_path / f"{name}.txt"), w) for name, w in (("a", 1), ("b", 3)))
    config = DataConfig(sources, window=50, batch=4, valid_fraction=0.0)
    digest = hashlib.sha256(take(config, 40).astype("<i4").tobytes()).hexdigest()
    assert digest[:16] == "ba0546ffb082212c"


def test_sources_are_mixed_by_weight(config):
    counts = np.bincount([source_of(ids) for ids in take(config, 100).reshape(-1, 33)])
    np.testing.assert_allclose(counts / 800, np.array([1, 2.5, 0.5]) / 4, atol=0.01)


def test_an_epoch_of_a_source_is_all_its_windows(config):
    examples = data.examples(config, "train")
    corpus = data._documents(config.sources[0], config, "train")
    count = packing.full_windows(corpus.ids.size, config.window)
    drawn = (examples[i] for i in itertools.count())
    from_first = (ids for ids in drawn if source_of(ids) == 0)
    epochs = [list(itertools.islice(from_first, count)) for _ in range(2)]
    for epoch in epochs:
        assert len({ids.tobytes() for ids in epoch}) == count
    assert [e.tobytes() for e in epochs[0]] != [e.tobytes() for e in epochs[1]]


def rows_of(config, count):
    """Which rows of a batch each of several processes takes; on a torus not one run of them."""
    return np.arange(config.batch).reshape(-1, count).T


@given(
    start=st.integers(0, 300) | st.just(10**12),
    sizes=st.sampled_from([(1, 1), (4, 2), (8, 1), (8, 2), (8, 4), (8, 8)]),
)
@settings(max_examples=15)
def test_the_next_batches_are_the_next_examples(config, start, sizes):
    """Whatever batch size came before, and however many processes take it; also very far on."""
    batch, processes = sizes
    config = dataclasses.replace(config, batch=batch)
    examples = data.examples(config, "train")
    expected = np.stack([examples[start + i] for i in range(3 * batch)]).reshape(3, batch, -1)
    for rows in rows_of(config, processes):
        found = take(config, 3, start=start, rows=rows)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected[:, rows])


def validation(config, **where):
    batches = list(data.batches(config, split="valid", **where))
    assert len({ids.shape for ids in batches}) == 1
    return np.concatenate(batches)


@pytest.mark.parametrize("batch", [1, 8, 1000])
def test_validation_is_one_pass_over_all_that_is_held_out(config, batch):
    config = dataclasses.replace(config, batch=batch)
    targets = validation(config)[:, 1:].ravel()
    expected = [data._documents(source, config, "valid").ids[1:] for source in config.sources]
    np.testing.assert_array_equal(targets[targets != vocab.BOE], np.concatenate(expected))


def test_processes_validate_in_step(config):
    whole = validation(config).reshape(-1, config.batch, config.window + 1)
    for rows in rows_of(config, 4):
        own = validation(config, rows=rows).reshape(len(whole), len(rows), -1)
        np.testing.assert_array_equal(own, whole[:, rows])


def test_validation_past_its_end_is_empty(config):
    assert list(data.batches(config, split="valid", start=10**6)) == []


def test_nothing_held_out_is_trained_on(config):
    for source in config.sources:
        sides = [data._documents(source, config, split) for split in ("train", "valid")]
        kept, held = (
            {bytes(part) for part in np.split(side.ids, side.starts[1:-1])} for side in sides
        )
        assert held
        assert not held & kept


def test_the_split_and_its_epochs_do_not_depend_on_other_sources(config):
    alone = dataclasses.replace(config, sources=config.sources[:1])
    both = data.examples(config, "train"), data.examples(alone, "train")
    first = [
        [ids for ids in map(e.__getitem__, range(n)) if source_of(ids) == 0][:20]
        for e, n in zip(both, (200, 20), strict=True)
    ]
    np.testing.assert_array_equal(*first)
    held = validation(alone)
    rows = (len(held) - 8) // 8 * 8
    np.testing.assert_array_equal(held[:rows], validation(config)[:rows])


def test_an_abandoned_iterator_leaves_no_thread(config):
    before = threading.active_count()
    for _ in range(5):
        batches = data.batches(config, split="train")
        next(batches)
        del batches
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_too_little_text(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 8)
    config = DataConfig((Source(str(tmp_path)),), window=10, valid_fraction=0.0)
    with pytest.raises(DataError, match="8 bytes to train on do not fill a window of 10; lower"):
        data.batches(config, split="train")
    next(data.batches(dataclasses.replace(config, window=9), split="train"))


def test_no_source():
    with pytest.raises(DataError, match="name some with --data"):
        data.batches(DataConfig(), split="train")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"rows": np.array([0, 8])}, "a batch of 8 has no row 8"),
        ({"rows": np.array([-1])}, "a batch of 8 has no row -1"),
        ({"start": -1}, "start must not be negative: -1"),
    ],
)
def test_bad_calls(config, where, said):
    with pytest.raises(DataError, match=said):
        data.batches(config, split="train", **where)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"window": 0}, "window must be at least 1, not 0"),
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"prefetch": -1}, "prefetch must be at least 0, not -1"),
        ({"valid_fraction": 1.0}, r"valid_fraction must be in \[0, 1\), not 1.0"),
    ],
)
def test_bad_configs(fields, said):
    with pytest.raises(DataError, match=said):
        DataConfig(**fields)


def test_every_field_is_settable_from_a_command_line():
    flags = "--window 7 --batch 3 --seed 5 --valid-fraction 0.5 --prefetch 1"
    args = ["--data", "a.txt", r'b/*.gz weight=2 separator="\n{3,} "', *flags.split()]
    made = tyro.cli(DataConfig, args=args)
    sources = (Source("a.txt"), Source("b/*.gz", 2.0, separator=r"\n{3,} "))
    assert made == DataConfig(sources, 7, 3, 5, 0.5, 1)
    assert tyro.cli(DataConfig, args=[], default=made) == made


def test_a_command_line_says_what_is_wrong_with_a_source(capsys):
    with pytest.raises(SystemExit):
        tyro.cli(DataConfig, args=["--data", "a.txt weight=0"])
    assert "a.txt: the weight must be positive, not 0.0" in capsys.readouterr().err
