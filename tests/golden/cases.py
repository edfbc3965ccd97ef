"""Loads the golden cases that `make_golden.py` wrote."""

import dataclasses
import pathlib

import numpy as np

NAMES = (
    "base",
    "gqa_k4",
    "window",
    "max_patch_length",
    "monotonicity",
    "threshold_add",
    "byte_patches",
    "long_patch",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A tiny model and what transformers computes with it.

    Attributes:
      directory: the checkpoint, in the layout of transformers.
      ids: i32[S], a text behind its BOS.
      entropies: f32[S], nats; zeros without an entropy model.
      hash_ids: i32[S, hashes], rows of the fused table.
      patch_lengths: i32[P], the byte after the text included: they sum to S + 1.
      logit_positions, logit_columns: the positions and the ids that `logits` holds.
      logits: f32[positions, columns].
      continuation: i32[24], greedy with ids 0..3 suppressed.
      continuation_patch_lengths: of text and continuation.
      threshold_margin: least distance of an entropy (or rise) to what the patcher compares it with.
      top2_margin: least gap between the two highest logits of the continuation.
    """

    directory: pathlib.Path
    ids: np.ndarray
    entropies: np.ndarray
    hash_ids: np.ndarray
    patch_lengths: np.ndarray
    logit_positions: np.ndarray
    logit_columns: np.ndarray
    logits: np.ndarray
    continuation: np.ndarray
    continuation_patch_lengths: np.ndarray
    threshold_margin: np.ndarray
    top2_margin: np.ndarray


def load(name: str) -> Case:
    directory = pathlib.Path(__file__).parent / name
    with np.load(directory / "golden.npz") as arrays:
        return Case(directory, **arrays)
