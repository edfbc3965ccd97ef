"""The arithmetic of windows: what each holds, and that together they hold everything."""

import collections

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bytelax import vocab
from bytelax.training import documents, packing

TEXTS = st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=12)
WINDOW = st.integers(1, 20)


@given(TEXTS, st.randoms(use_true_random=False), st.data())
def test_cut_is_a_slice_of_the_documents_end_to_end(texts, random, data):
    order = random.sample(range(len(texts)), len(texts))
    ids = [i for d in order for i in vocab.encode(texts[d], eos=True)]
    begin = data.draw(st.integers(0, len(ids) - 1))
    end = data.draw(st.integers(begin + 1, len(ids)))
    stream = packing.stream(documents.pack(texts), np.array(order))
    assert packing.cut(stream, begin, end).tolist() == ids[begin:end]


@given(TEXTS, WINDOW, st.integers(0, 3))
def test_an_epoch_has_every_id_as_target_once_but_its_first_and_its_tail(texts, window, epoch):
    packed = documents.pack(texts)
    windows = packing.TrainWindows(packed, window, (0,))
    count = (packed.ids.size - 1) // window
    assert windows.windows_per_epoch == count
    cut = [windows[epoch * count + k].tolist() for k in range(count)]
    assert all(len(ids) == window + 1 for ids in cut)
    # Laid by their one id of overlap the windows are the stream again: BOS, then the targets.
    order = packing.shuffled(count, 0, epoch, "windows")
    targets = [i for k in np.argsort(order) for i in cut[k][1:]]
    whole = packing.shuffled(len(texts), 0, epoch, "documents")
    expected = [i for d in whole for i in vocab.encode(texts[d], eos=True)]
    assert targets == expected[1 : count * window + 1]
    inputs = [i for k in np.argsort(order) for i in cut[k][:-1]]
    assert inputs == expected[: count * window]
    assert len(expected) - 1 - len(targets) < window


def test_epochs_have_other_windows_in_another_order():
    rng = np.random.default_rng(0)
    windows = packing.TrainWindows(documents.pack([rng.bytes(100) for _ in range(50)]), 64, (0,))
    count = windows.windows_per_epoch
    one, two = ([windows[e * count + k].tobytes() for k in range(count)] for e in (0, 1))
    assert one != two
    assert len(set(one) & set(two)) < count // 2


def test_the_tail_is_not_the_same_in_every_epoch():
    texts = [bytes([65 + i]) * 10 for i in range(26)]
    windows = packing.TrainWindows(documents.pack(texts), 100, (0,))
    seen = collections.Counter()
    for i in range(8 * windows.windows_per_epoch):
        seen.update(windows[i][1:].tolist())
    assert all(seen[65 + i + vocab.OFFSET] > 20 for i in range(26))


@given(TEXTS, WINDOW)
def test_validation_has_every_id_but_the_first_as_target_once(texts, window):
    windows = packing.ValidWindows(documents.pack(texts), window)
    targets = np.concatenate([windows[k][1:] for k in range(len(windows))]).tolist()
    inputs = np.concatenate([windows[k][:-1] for k in range(len(windows))]).tolist()
    expected = [i for text in texts for i in vocab.encode(text, eos=True)]
    padding = len(targets) - len(expected) + 1
    assert targets == expected[1:] + [vocab.BOE] * padding
    assert inputs[: len(expected)] == expected[: len(inputs)]
    assert 0 <= padding < window


@given(st.integers(0, 10**6), st.integers(1, 5000))
def test_full_windows_are_as_many_as_fit(total, window):
    count = packing.full_windows(total, window)
    assert count * window + 1 <= max(total, 1) < (count + 1) * window + 1


@given(st.integers(0, 2000), st.integers())
def test_shuffled_is_an_order(count, seed):
    assert sorted(packing.shuffled(count, seed).tolist()) == list(range(count))


def test_shuffled_never_changes():
    """Another order would change what a checkpoint's position means."""
    assert packing.shuffled(8, 0, "windows").tolist() == [2, 3, 4, 1, 7, 5, 6, 0]


def test_shuffled_spreads():
    firsts = collections.Counter(int(packing.shuffled(10, seed)[0]) for seed in range(5000))
    assert len(firsts) == 10
    assert all(400 < count < 600 for count in firsts.values())


def test_splitmix_gives_the_published_numbers():
    numbers = packing._splitmix(np.arange(3, dtype=np.uint64), np.array([1234567], np.uint64))
    assert numbers.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
