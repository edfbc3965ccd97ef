"""What drafts across patch boundaries would take of the 1B. Calculated: nothing is timed."""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

from bytelax import calculator
from bytelax.models import layers
from experiments.compile.rounds import reckoned
from experiments.harness import evidence, floor, published_fast_blt, study

PLAIN, NESTED = "ar", "blt-s 16, nested"
# Methods of the rounds: bytes drafted, their row in the study of latents and in the published
# acceptance, and whether latents are predicted.
DRAFTS = {
    "blt-s": (8, "stale", "blt-s 8", False),
    "blt-s 16": (16, "stale", "blt-s 16", False),
    "blt-s 16, predicted": (16, "predicted", "blt-s 16", True),
    NESTED: (16, "predicted, nested", "blt-s 16", True),
}
SHOWN = {PLAIN: "plain", "blt-s": "blt-s 8", "blt-s 16": "blt-s 16"}
PLACES = (("h200", 1), ("h200", 64), ("v5e", 1), ("v5e", 8))
V5E_TERABYTES = 0.9 * 0.819  # read a second: nine tenths of the data sheet's
V5E_GHZ = 1.5
TINY_0, TINY_1, PUBLISHED = ACCEPTANCES = "T = 0", "T = 1", "published"


class Round(NamedTuple):
    """What a row keeps of a round, and how often a round runs its parts.

    Attributes:
      kept: bytes.
      steps: passes of the decoder that draft.
      renewals: of these, those in which a latent is predicted in some row.
      chunks: runs of the global transformer.
    """

    kept: float
    steps: float
    renewals: float
    chunks: float

    def times(self) -> dict[str, float]:
        """How often each part of a compiled program runs."""
        return {
            "round": 1, "draft": self.steps, "renewal": self.renewals, "chunk": self.chunks,
        }  # fmt: skip


def rounds(method: str, rows: int, acceptance: str) -> list[Round]:
    """Rounds of a method in a batch: one, or two that the true one lies between.

    Nested drafting goes on until the slowest row has its draft. How many passes that takes is
    known of a single row; in a batch it is between those and one for each byte.
    """
    if method == PLAIN:
        return [Round(1, 0, 0, reckoned.in_any_row(1 / reckoned.PATCH, rows))]
    drafted, latents, printed, predicts = DRAFTS[method]
    row = evidence.latents_of_drafts(0.0 if acceptance == TINY_0 else 1.0)[latents, drafted]
    each = row["bytes_per_round"]["value"]  # of all prompts, as the passes are
    kept = each
    if acceptance == TINY_0:
        kept = row["bytes_per_round_without_loops"]["value"]
    elif acceptance == PUBLISHED:
        kept = calculator.bytes_per_round(published_fast_blt.acceptance()[printed])
    predicted = each * row["draft_passes_per_byte"]["value"] if predicts else 0.0
    passes = [drafted]
    if method == NESTED:
        alone = each * row["decoder_passes_per_byte"]["value"] - 1  # the last one verifies
        passes = [alone, drafted] if rows > 1 else [alone]
    return [Round(kept, steps, renewals(predicted, steps, rows), 1) for steps in passes]


def renewals(predicted: float, steps: float, rows: int) -> float:
    """Of the steps of a draft, those in which some row predicts a latent.

    Args:
      predicted: latents that a row predicts a draft.
      steps: passes of the decoder that draft.
      rows: of the batch, which close their patches independently of one another.
    """
    return steps * reckoned.in_any_row(min(1, predicted / steps), rows)


def read(method: str, rows: int, of: Round) -> float:
    """Seconds in which an H200 reads the weights and caches of a round's passes, or multiplies."""
    weights, cached, params = reckoned.networks()
    heads = params["heads"]
    drafted, *_ = DRAFTS.get(method, (0,))
    nested = method == NESTED

    def takes(weights, cached, passes, width, machine=floor.H200, itemsize=2):
        return floor.seconds(
            machine, weights, cached, passes=passes, rows=rows, width=width, itemsize=itemsize
        )

    local = weights.decoder + weights.encoder, cached.decoder + cached.encoder
    total = takes(*local, 1, drafted + 1)
    total += takes(weights.patcher, cached.patcher, 1, drafted + 1, floor.H200_EXACT, 4)
    # From 64 rows on a chunk has a place for each byte of the window; for one row reading decides.
    total += takes(weights.global_, cached.global_, of.chunks, drafted + 1)
    total += takes(*local, of.steps, 1 + reckoned.AHEAD * nested)
    if of.renewals:
        total += takes(layers.weights(heads["closes"]), 0, of.steps, 1)
        head = layers.weights(heads["latents"]) + floor.weights_of_contexts(params)
        total += takes(head, 0, of.renewals, 1)
    if nested:
        ahead = layers.weights({name: x for name, x in heads.items() if name.startswith("ahead")})
        total += takes(ahead, 0, of.steps, 1)
    return total


def cached_bytes(method: str, rows: int, of: Round) -> float:
    """Bytes of caches that the passes of a round read."""
    _, cached, _ = reckoned.networks()
    local = 2 * (cached.decoder + cached.encoder)
    return rows * ((1 + of.steps) * local + 4 * cached.patcher + 2 * of.chunks * cached.global_)


def milliseconds(
    chip: str, method: str, rows: int, of: Round, whole: Callable[[str], float]
) -> list[float]:
    """Of a round: for the H200 with the least and the most that an operation is assumed to take.

    Args:
      chip: "h200" or "v5e".
      method, rows, of: the round.
      whole: from the name of a figure of the compiled program to that of a round.
    """
    if chip == "h200":
        least = 1e3 * read(method, rows, of)
        return [least + whole("operations") * each / 1e3 for each in reckoned.MICROSECONDS]
    caches = cached_bytes(method, rows, of) / V5E_TERABYTES / 1e9
    return [whole("cycles") / V5E_GHZ / 1e6 + caches]


def ranges(
    chip: str, rows: int, method: str, acceptance: str, figure: Callable
) -> dict[str, list[float]]:
    """Milliseconds of a round and of a byte, and how many times as fast as plain decoding it is.

    Each as the least and the most over what is assumed.
    """

    def each(method):
        for found in rounds(method, rows, acceptance):
            whole = functools.partial(figure, chip, method, rows, found.times())
            yield found.kept, milliseconds(chip, method, rows, found, whole)

    ((_, plain),) = each(PLAIN)
    own = list(each(method))
    bytes_ = [[ms / kept for ms in both] for kept, both in own]
    found = {
        "round": list(itertools.chain(*(both for _, both in own))),
        "byte": list(itertools.chain(*bytes_)),
        "speed": [p / ms for both in bytes_ for p, ms in zip(plain, both, strict=True)],
    }
    return {name: [min(values), max(values)] for name, values in found.items()}


HEADER = (
    "for", "rows", "method", "ms a round, T = 1", "ms a byte, T = 0", "T = 1", "published",
    "times as fast as plain, T = 0", "T = 1", "published",
)  # fmt: skip
KEPT = (
    "method", "bytes kept, T = 0", "T = 1", "published", "decoder passes that draft, T = 0 / 1",
    "latents predicted, T = 0 / 1",
)  # fmt: skip


def _legend(arguments: dict[tuple, int]) -> list[str]:
    many, few = (arguments.get(("h200", PLAIN, 64)), arguments.get(("v5e", PLAIN, 8)))
    held = (
        f" (64 rows of plain decoding hold {many / 1e9:.0f} GB, 8 rows {few / 1e9:.0f})"
        if many and few
        else ""
    )
    low, high = reckoned.MICROSECONDS
    return [
        "**Calculated from compiled programs, not timed.** On an H100 a plain byte took three to "
        "four times as long as the reckoning for the H200 "
        "([kernels.md](../../../docs/kernels.md#on-an-h100)): the ratios are what to read.",
        "",
        f"- H200: as in [the README](README.md), {low:g} to {high:g} microseconds for each "
        f"operation, and reading what a round's passes need at {reckoned.TERABYTES:g} TB a second, "
        "or multiplying where that takes longer: 700 TFLOP/s, and 67 in the entropy model's "
        f"float32. Rows of {reckoned.CONTEXT} bytes, in patches of {reckoned.PATCH} bytes.",
        f"- v5e: the compiler's estimate, and reading the caches at {V5E_TERABYTES:.2f} TB/s, nine "
        "tenths of the data sheet's. A chip has 16 GB, which is room for 8 rows of these buffers "
        f"and not for 64{held}: there 64 rows are eight chips.",
        "- T = 0 and 1: bytes that drafters of `tiny` keep on natural prompts, at temperature 0 "
        "without loops ([speed/latents](../../speed/latents/README.md)). A `tiny` is no 1B.",
        "- Published: the acceptance that Fast BLT prints for its 3B model, French to English. It "
        "is of a stale latent that is renewed before each draft. For predicted latents it is an "
        "estimate: in our study they keep more than stale ones, so rather a lower bound. For the "
        "stale latent here, which is not renewed, it is rather an upper bound.",
        f"- Nested: {reckoned.AHEAD} multi-byte heads draft for the decoder. Its passes and the "
        "latents predicted are those of `tiny`, at the published acceptance those of T = 1. In a "
        "batch the draft waits for the slowest row: between the passes of a single row and one "
        "for each byte.",
        "- A step of a draft predicts latents if a patch closes in any row, and a plain byte runs "
        "the global transformer likewise. Rows are taken as independent, and none waits. In a "
        "batch a byte is one of each row.",
    ]


def page(figure: Callable, arguments: dict[tuple, int]) -> list[str]:
    """Lines of Markdown.

    Args:
      figure: from chip, method, rows, how often each part runs and the name of a figure to that of
        a round.
      arguments: bytes of the arguments of the programs that there are, by chip, method and rows.
    """
    rows = []
    for chip, batch in PLACES:
        for method in (PLAIN, *DRAFTS):
            if {(chip, method, batch), (chip, PLAIN, batch)} <= set(arguments):
                found = [ranges(chip, batch, method, name, figure) for name in ACCEPTANCES]
                rows.append((
                    chip, batch, SHOWN.get(method, method),
                    reckoned.between(found[1]["round"], 2),
                    *(reckoned.between(each["byte"], 2) for each in found),
                    *(reckoned.between(each["speed"], 2) for each in found),
                ))  # fmt: skip
    return [
        "# Predicted latents at the shape of the 1B, reckoned",
        "",
        *_legend(arguments),
        "",
        *study.table(KEPT, [_kept(method) for method in DRAFTS]),
        "",
        *study.table(HEADER, rows),
    ]


def _kept(method: str) -> tuple:
    alone = {name: rounds(method, 1, name)[0] for name in ACCEPTANCES}
    return (
        SHOWN.get(method, method),
        *(f"{each.kept:.2f}" for each in alone.values()),
        " / ".join(f"{alone[name].steps:.1f}" for name in (TINY_0, TINY_1)),
        " / ".join(f"{alone[name].renewals:.1f}" for name in (TINY_0, TINY_1)),
    )
