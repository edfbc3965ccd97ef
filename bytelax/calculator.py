"""What a decoding method gains by its acceptance, and the weights that its passes read.

Pure arithmetic that runs no model. See `docs/calculator.md`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

BYTES_PER_WEIGHT = 2  # the published figures count bfloat16 weights


class Passes(NamedTuple):
    """Number of forward passes of each network."""

    decoder: float
    encoder: float
    global_: float
    patcher: float
    draft_model: float = 0.0


class Sizes(NamedTuple):
    """What one pass of each network reads: numbers of weights, or of cached keys and values."""

    decoder: float
    encoder: float
    global_: float
    patcher: float = 0.0
    draft_model: float = 0.0


def bytes_per_round(acceptance_by_position: Sequence[float]) -> float:
    """Returns the expected number of bytes per verified round: accepted ones and one more.

    Args:
      acceptance_by_position: share of drafted bytes that are accepted at each position, as in
        `Statistics.to_dict()`. If all are equal, that number is the acceptance rate acc of the
        paper, and the result its k acc + 1.
    """
    return 1 + math.fsum(acceptance_by_position)


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
