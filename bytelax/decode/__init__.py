"""The building blocks of decoding: a `Method` is a target, a drafter and an acceptance rule."""

from bytelax.decode.acceptance import (
    Acceptance,
    Emitted,
    Lossless,
    Typical,
    at_draft,
    block_verification,
    drafted_probs,
    follow,
    greedy,
    is_drafted,
    lossless,
    prefix,
    rejection,
    residual,
    take_all,
    typical,
)
from bytelax.decode.constraint import Automaton
from bytelax.decode.draft import (
    Draft,
    DraftPasses,
    Drawn,
    certain,
    draft_of,
    draw,
    in_a_row,
    no_passes,
    scanned,
)
from bytelax.decode.drafter import Drafter, DraftInput, Empty
from bytelax.decode.method import Decoding, Method, Params
from bytelax.decode.record import Origin, Origins
from bytelax.decode.sampling import Sampling, happens, process_logits, sample
from bytelax.decode.stopping import Stops
from bytelax.decode.target import Branching, Rewindable, Target, Text
from bytelax.decode.trees import KSeq, Tree, k_seq

__all__ = [
    "Acceptance",
    "Automaton",
    "Branching",
    "Decoding",
    "Draft",
    "DraftInput",
    "DraftPasses",
    "Drafter",
    "Drawn",
    "Emitted",
    "Empty",
    "KSeq",
    "Lossless",
    "Method",
    "Origin",
    "Origins",
    "Params",
    "Rewindable",
    "Sampling",
    "Stops",
    "Target",
    "Text",
    "Tree",
    "Typical",
    "at_draft",
    "block_verification",
    "certain",
    "draft_of",
    "drafted_probs",
    "draw",
    "follow",
    "greedy",
    "happens",
    "in_a_row",
    "is_drafted",
    "k_seq",
    "lossless",
    "no_passes",
    "prefix",
    "process_logits",
    "rejection",
    "residual",
    "sample",
    "scanned",
    "take_all",
    "typical",
]
