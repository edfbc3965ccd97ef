"""Patch boundaries against the rule written out, a text at a time and a window at a time."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.models import patching
from bytelax.models.patching import OpenPatch, PatchingConfig

ROWS, LENGTH, WINDOW = 24, 40, 8
POSITIONS = jnp.asarray(np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)))
RULES = {
    "threshold": {"threshold": 1.0},
    "monotonicity": {"threshold": 0.25, "monotonicity": True},
    "threshold_add": {"threshold": 1.0, "threshold_add": 0.125},
    "monotonicity overrules": {"threshold": 0.25, "monotonicity": True, "threshold_add": 0.5},
    "stride 1": {"mode": "stride", "stride": 1},
    "stride 3": {"mode": "stride", "stride": 3},
    "byte": {"mode": "byte"},
}
CONFIGS = [
    pytest.param(PatchingConfig(**rule, max_patch_length=longest), id=f"{name}, at most {longest}")
    for (name, rule), longest in itertools.product(RULES.items(), (None, 1, 2, 3, 5))
]


def random_entropies(seed, shape=(ROWS, LENGTH)):
    """Multiples of 1/8, so that values equal to a threshold are common; some rows are flat."""
    entropies = np.random.default_rng(seed).integers(0, 14, shape) / np.float32(8)
    entropies[:4] = np.minimum(entropies[:4], 1.0)  # no boundary but the forced ones
    return entropies.astype(np.float32)


def reference_lengths(entropies, config):
    """Lengths of the patches of the text and the byte after it."""
    starts = [0]
    for following in range(1, len(entropies) + 1):
        now, before = entropies[following - 1], entropies[following - 2]
        if config.mode == "byte" or following == 1:
            new = True
        elif config.mode == "stride":
            new = (following - 1) % config.stride == 0
        elif config.monotonicity:
            new = following == 2 or now - before > config.threshold
        elif config.threshold_add is None:
            new = now > config.threshold
        else:
            rises = now - before > config.threshold_add
            new = following == 2 or (following != 3 and rises and now > config.threshold)
        if new:
            starts.append(following)
    lengths = []
    for begin, end in itertools.pairwise([*starts, len(entropies) + 1]):
        pieces = range(begin, end, config.max_patch_length or LENGTH + 1)
        lengths += [min(end, p + (config.max_patch_length or LENGTH + 1)) - p for p in pieces]
    return lengths


def lengths_of(starts):
    """The same from the start of the patch of every byte and of the byte after the text."""
    begins = np.flatnonzero(starts == np.arange(len(starts)))
    return np.diff([*begins, len(starts)]).tolist()


def open_patches(state, entropies, positions, config):
    patches = patching.open_patches(
        state, jnp.asarray(entropies), jnp.asarray(positions), config=config
    )
    return OpenPatch(*map(np.asarray, patches))


@pytest.mark.parametrize("config", CONFIGS)
def test_whole_text(config):
    entropies = random_entropies(0)
    patches = open_patches(patching.no_patch(ROWS), entropies, POSITIONS, config)
    closes = patching.closing(OpenPatch(*map(jnp.asarray, patches)), POSITIONS)
    for row in range(ROWS):
        expected = reference_lengths(entropies[row], config)
        assert sum(expected) == LENGTH + 1
        starts = patches.start[row]
        assert lengths_of(starts) == expected
        assert (np.diff(starts) >= 0).all() and (starts <= np.arange(LENGTH + 1)).all()
        ends = np.flatnonzero(closes[row])
        np.testing.assert_array_equal(ends, np.cumsum(expected[:-1]) - 1)


@pytest.mark.parametrize("config", CONFIGS)
def test_windows_of_any_cut_with_rejected_bytes(config):
    """Windows of 8 of which 1..8 bytes are kept, other counts in every row."""
    rng = np.random.default_rng(1)
    entropies, garbage = random_entropies(0), random_entropies(2, (ROWS, LENGTH + WINDOW))
    whole = open_patches(patching.no_patch(ROWS), entropies, POSITIONS, config)
    done, state = np.zeros(ROWS, np.int32), patching.no_patch(ROWS)
    row = np.arange(ROWS)[:, None]
    while (done < LENGTH).any():
        count = np.minimum(rng.integers(1, WINDOW + 1, ROWS), LENGTH - done)
        at = done[:, None] + np.arange(WINDOW, dtype=np.int32)
        kept = np.arange(WINDOW) < count[:, None]
        seen = np.where(kept, entropies[row, np.minimum(at, LENGTH - 1)], garbage[row, at])
        patches = open_patches(state, seen, at, config)
        for slot in range(WINDOW + 1):
            there = slot <= count
            for part, expected in zip(patches, whole, strict=True):
                np.testing.assert_array_equal(
                    part[there, slot], expected[there, done[there] + slot]
                )
        state = OpenPatch(*(jnp.asarray(part[row[:, 0], count]) for part in patches))
        done += count.astype(np.int32)


@pytest.mark.parametrize("fields", [{"max_patch_length": 0}, {"mode": "stride", "stride": 0}])
def test_config_errors(fields):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        PatchingConfig(**fields)
