"""The arithmetic of windows: what each holds, and that together they hold everything."""

import collections

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bytelax import vocab
from bytelax.training import documents, packing

TEXTS = st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=12)
WINDOW = st.integers(1, 20)


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


def test_shuffled_spreads():
    firsts = collections.Counter(int(packing.shuffled(10, seed)[0]) for seed in range(5000))
    assert len(firsts) == 10
    assert all(400 < count < 600 for count in firsts.values())


def test_splitmix_gives_the_published_numbers():
    numbers = packing._splitmix(np.arange(3, dtype=np.uint64), np.array([1234567], np.uint64))
    assert numbers.tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
