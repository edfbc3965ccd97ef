"""Scores of texts, and patches of an entropy model alone."""

from bytelax.scoring.patcher import Patcher, Patches, patches
from bytelax.scoring.scores import (
    Continuation,
    Score,
    Scores,
    figures,
    score,
    score_continuations,
    score_many,
)

__all__ = [
    "Continuation",
    "Patcher",
    "Patches",
    "Score",
    "Scores",
    "figures",
    "patches",
    "score",
    "score_continuations",
    "score_many",
]
