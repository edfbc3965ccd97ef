"""What a decoding method costs, from acceptance alone: passes, weights read, when it pays.

Numbers only; nothing here runs a model. Formulas of Fast BLT (arXiv 2605.08044, eq. 8), and counts
that its tables follow. See `docs/calculator.md`.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

BYTES_PER_WEIGHT = 2  # the published figures count bfloat16 weights

Latent = Literal["reuse", "refresh"]


class Passes(NamedTuple):
    """Forward passes of each network: of a round, of a byte, or of a whole text."""

    decoder: float
    encoder: float
    global_: float
    patcher: float
    draft_model: float = 0.0

    def per_byte(self, bytes_per_round: float) -> "Passes":
        """The passes of a round, shared among its bytes."""
        return Passes(*(number / bytes_per_round for number in self))

    def times(self, number: float) -> "Passes":
        return Passes(*(number * each for each in self))


class Sizes(NamedTuple):
    """Numbers that one pass of each network reads: weights, or cached keys and values."""

    decoder: float
    encoder: float
    global_: float
    patcher: float = 0.0
    draft_model: float = 0.0


# Bytes of a round


def acceptance_by_position(chance: float, draft_length: int) -> tuple[float, ...]:
    """Chance that a drafted byte is accepted, by place, if each that is reached has one `chance`.

    A byte is reached only if all before it were accepted: a, a^2, ..., a^k.
    """
    if not 0 <= chance <= 1:
        raise ValueError(f"a chance lies in 0..1, got {chance}")
    return tuple(chance**place for place in range(1, draft_length + 1))


def bytes_per_round(acceptance_by_position: Sequence[float]) -> float:
    """Expected bytes of a verified round: the accepted ones, and one of the target's own.

    Args:
      acceptance_by_position: accepted bytes out of those drafted, by place in the draft, as in
        `Statistics.to_dict()`. If they are all one number, that is the acceptance rate of the
        paper, and the sum is its k acc + 1.
    """
    return 1 + math.fsum(acceptance_by_position)


def bytes_per_round_at(chance: float, draft_length: int) -> float:
    """The same from one chance a byte: (1 - a^(k+1)) / (1 - a) (arXiv 2211.17192, eq. 1)."""
    return bytes_per_round(acceptance_by_position(chance, draft_length))


# Passes of a round


def plain(bytes_per_patch: float) -> Passes:
    """Plain decoding: a round is a byte; the global transformer runs where a patch closes."""
    return Passes(decoder=1, encoder=1, global_=1 / bytes_per_patch, patcher=1)


def blt_s(draft_length: int, *, latent: Latent = "reuse", reads_encoder: bool = True) -> Passes:
    """A round of BLT-S.

    Args:
      draft_length: k.
      latent: "refresh" is the published algorithm, which takes in the pending byte with a full pass
        before it drafts, and gets the first drafted byte from it.
      reads_encoder: whether the decoder reads the encoder's states, so that every drafted byte
        passes through the encoder too (BLT as released; not Fast BLT's embedding).
    """
    full = _full_passes(latent)
    drafted = draft_length - (full - 1)
    return Passes(
        decoder=draft_length + 1,
        encoder=full + drafted * reads_encoder,
        global_=full,
        patcher=full,
    )


def blt_d(unmasking_passes: float) -> Passes:
    """A block of BLT-D that takes so many decoder passes to fill.

    The pass that takes in the last block is the first one of the next.
    """
    return Passes(decoder=unmasking_passes, encoder=1, global_=1, patcher=1)


def blt_dv(unmasking_passes: float, *, latent: Latent = "reuse") -> Passes:
    """A round of BLT-DV: so many decoder passes to fill a block, and one that verifies it."""
    full = _full_passes(latent)
    return Passes(decoder=unmasking_passes + 1, encoder=full, global_=full, patcher=full)


def _full_passes(latent):
    """Of all networks in a round: upper bounds, as a window may close no patch."""
    if latent not in ("reuse", "refresh"):
        raise ValueError(f"latent {latent!r} is not reuse or refresh")
    return 1 if latent == "reuse" else 2


# Bandwidth


def bandwidth_gb(passes: Passes, weights: Sizes) -> float:
    """Weights read, in GB: eq. 8 of Fast BLT, 2 (N_dec P_dec + N_glob (P_enc + P_glob)) / 1e9.

    The encoder is counted where the global transformer runs, as published, and the entropy model
    not at all. A drafter's own network counts whole at every pass; the paper has none.
    """
    read = passes.decoder * weights.decoder
    read += passes.global_ * (weights.encoder + weights.global_)
    read += passes.draft_model * weights.draft_model
    return BYTES_PER_WEIGHT * read / 1e9


def bandwidth_gb_with_patcher(passes: Passes, weights: Sizes) -> float:
    """Eq. 8 with the entropy model's weights."""
    return bandwidth_gb(passes, weights) + BYTES_PER_WEIGHT * passes.patcher * weights.patcher / 1e9


def bandwidth_gb_in_full(passes: Passes, weights: Sizes, caches: Sizes) -> float:
    """Each network at each of its own passes: its weights, and the keys and values it looks at."""
    read = sum(
        number * (weight + cached)
        for number, weight, cached in zip(passes, weights, caches, strict=True)
    )
    return BYTES_PER_WEIGHT * read / 1e9


def cached_numbers(layers: int, kv_heads: int, head_dim: int, positions: float) -> float:
    """Keys and values of a stack that a pass reads.

    Args:
      positions: bytes or patches that a query sees: the text's, or the attention window's if that
        is less.
    """
    return 2 * layers * kv_heads * head_dim * positions


def break_even_bytes_per_patch(per_round: Passes, bytes_per_round: float, weights: Sizes) -> float:
    """Mean patch below which a method reads fewer weights than plain decoding, by eq. 8.

    Plain decoding reads the global transformer once a patch, so the longer the patches the less
    there is to save. Infinite where the method reads less whatever the patches are.
    """
    plain_decoder = bandwidth_gb(Passes(1, 1, 0, 1), weights)
    a_patch = bandwidth_gb(Passes(0, 0, 1, 0), weights)
    extra = bandwidth_gb(per_round.per_byte(bytes_per_round), weights) - plain_decoder
    return a_patch / extra if extra > 0 else math.inf
