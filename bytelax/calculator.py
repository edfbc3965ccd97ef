"""Predicts the cost of a decoding method from its acceptance: passes, weights read, break-even.

Pure arithmetic that runs no model. The formulas are those of Fast BLT (arXiv 2605.08044, eq. 8) and
the counts behind its tables. See `docs/calculator.md`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

BYTES_PER_WEIGHT = 2  # the published figures count bfloat16 weights

Latent = Literal["reuse", "refresh"]


class Passes(NamedTuple):
    """Number of forward passes of each network: per round, per byte, or for a whole text."""

    decoder: float
    encoder: float
    global_: float
    patcher: float
    draft_model: float = 0.0

    def per_byte(self, bytes_per_round: float) -> "Passes":
        """Converts the passes of a round to passes per emitted byte."""
        return Passes(*(number / bytes_per_round for number in self))

    def times(self, number: float) -> "Passes":
        """Multiplies all passes by a number."""
        return Passes(*(number * each for each in self))


class Sizes(NamedTuple):
    """What one pass of each network reads: numbers of weights, or of cached keys and values."""

    decoder: float
    encoder: float
    global_: float
    patcher: float = 0.0
    draft_model: float = 0.0


# Bytes of a round


def bytes_per_round(acceptance_by_position: Sequence[float]) -> float:
    """Returns the expected number of bytes per verified round: accepted ones and one more.

    Args:
      acceptance_by_position: share of drafted bytes that are accepted at each position, as in
        `Statistics.to_dict()`. If all are equal, that number is the acceptance rate acc of the
        paper, and the result its k acc + 1.
    """
    return 1 + math.fsum(acceptance_by_position)


def bytes_per_round_at(chance: float, draft_length: int) -> float:
    """Returns the expected bytes per round, (1 - a^(k+1)) / (1 - a) (arXiv 2211.17192, eq. 1).

    Args:
      chance: a, the probability that a byte is accepted if all before it were.
      draft_length: k, number of drafted bytes.

    Raises:
      ValueError: `chance` is outside [0, 1].
    """
    if not 0 <= chance <= 1:
        raise ValueError(f"a chance lies in 0..1, got {chance}")
    return bytes_per_round([chance**place for place in range(1, draft_length + 1)])


# The best setting


class Plan(NamedTuple):
    """A method with a draft length, and what it is expected to gain.

    Attributes:
      method: its name; "ar" is plain decoding, which drafts nothing.
      draft_length: number of bytes drafted in each round.
      bytes_per_round: expected number of bytes that a round emits.
      round_cost: cost of a round, in the unit of the costs given.
      speed: speed-up over plain decoding.
    """

    method: str
    draft_length: int
    bytes_per_round: float
    round_cost: float
    speed: float


def plan(
    windows: Sequence[float],
    acceptance: Mapping[str, Sequence[float]],
    drafting: Mapping[str, Sequence[float]],
) -> list[Plan]:
    """Returns every method and draft length, the fastest first, plain decoding among them.

    A round that drafts k bytes costs what drafting them and verifying a window of k + 1 bytes cost,
    and emits 1 + a_1 + ... + a_k bytes. Of settings that are equally fast, the one that drafts
    less comes first.

    Args:
      windows: costs of a pass over 1, 2, ... bytes in any unit, such as seconds; the first is that
        of a plain byte.
      acceptance: by method, the share of rounds that keep the byte drafted at each position. It
        must not depend on how many bytes are drafted after that position.
      drafting: by method, costs of drafting 1, 2, ... bytes, in the same unit.

    Raises:
      ValueError: a cost of a whole round is not positive, or windows or costs are missing.
    """
    plans = [Plan("ar", 0, 1.0, windows[0], 1.0)]
    for method, shares in acceptance.items():
        longest, costs = len(shares), drafting.get(method, ())
        if len(windows) <= longest or len(costs) < longest:
            raise ValueError(
                f"{method} drafts up to {longest} bytes: costs of {longest + 1} windows and of as "
                f"many drafts are needed, got {len(windows)} and {len(costs)}"
            )
        for length in range(1, longest + 1):
            emitted = bytes_per_round(shares[:length])
            cost = windows[length] + costs[length - 1]
            if cost <= 0:
                raise ValueError(f"a round of {method} with {length} bytes costs {cost}")
            plans.append(Plan(method, length, emitted, cost, emitted * windows[0] / cost))
    return sorted(plans, key=lambda each: (-each.speed, each.draft_length))


# Passes of a round


def plain(bytes_per_patch: float) -> Passes:
    """Returns the passes of plain decoding, where a round is one byte.

    The global transformer only runs when a patch closes.
    """
    return Passes(decoder=1, encoder=1, global_=1 / bytes_per_patch, patcher=1)


def blt_s(draft_length: int, *, latent: Latent = "reuse", reads_encoder: bool = True) -> Passes:
    """Returns the passes of one round of BLT-S.

    Args:
      draft_length: k, number of bytes drafted.
      latent: "refresh" is the published algorithm. It processes the pending byte in a full pass
        before drafting, and takes the first drafted byte from that pass.
      reads_encoder: whether the decoder reads the encoder's states, so that every drafted byte also
        needs an encoder pass. True for BLT as released, False if it reads byte embeddings as in
        Fast BLT.
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
    """Returns the passes of one block of BLT-D, which takes `unmasking_passes` to fill.

    The decoder pass that processes a block is also the first unmasking pass of the next one.
    """
    return Passes(decoder=unmasking_passes, encoder=1, global_=1, patcher=1)


def blt_dv(unmasking_passes: float, *, latent: Latent = "reuse") -> Passes:
    """Returns the passes of one round of BLT-DV, which fills a block and verifies it.

    Args:
      unmasking_passes: number of decoder passes that fill a block.
      latent: as in `blt_s`.
    """
    full = _full_passes(latent)
    return Passes(decoder=unmasking_passes + 1, encoder=full, global_=full, patcher=full)


def _full_passes(latent):
    """Returns the full passes per round: upper bounds, since a window may close no patch."""
    if latent not in ("reuse", "refresh"):
        raise ValueError(f"latent {latent!r} is not reuse or refresh")
    return 1 if latent == "reuse" else 2


# Bandwidth


def bandwidth_gb(passes: Passes, weights: Sizes) -> float:
    """Returns the weights read, in GB, by eq. 8 of Fast BLT (arXiv 2605.08044).

    This is 2 (N_dec P_dec + N_glob (P_enc + P_glob)) / 1e9. As published, the encoder is counted
    once for every pass of the global transformer, and the entropy model not at all. All weights of
    a drafter's own network are added at each of its passes; the paper has no such network.
    """
    read = passes.decoder * weights.decoder
    read += passes.global_ * (weights.encoder + weights.global_)
    read += passes.draft_model * weights.draft_model
    return BYTES_PER_WEIGHT * read / 1e9


def bandwidth_gb_with_patcher(passes: Passes, weights: Sizes) -> float:
    """Returns the weights read by eq. 8 plus those of the entropy model, in GB."""
    return bandwidth_gb(passes, weights) + BYTES_PER_WEIGHT * passes.patcher * weights.patcher / 1e9


def break_even_bytes_per_patch(per_round: Passes, bytes_per_round: float, weights: Sizes) -> float:
    """Returns the mean patch length below which a method reads fewer weights than plain decoding.

    By eq. 8, plain decoding reads the global transformer once per patch, so longer patches leave
    less to save. Infinite if the method reads less at any patch length.
    """
    plain_decoder = bandwidth_gb(Passes(1, 1, 0, 1), weights)
    a_patch = bandwidth_gb(Passes(0, 0, 1, 0), weights)
    extra = bandwidth_gb(per_round.per_byte(bytes_per_round), weights) - plain_decoder
    return a_patch / extra if extra > 0 else math.inf
