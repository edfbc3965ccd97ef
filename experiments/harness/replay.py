"""Acceptance that is replayed at the rates that were asked for.

`Replayed` draws one number per round. Over the sixty rounds of a text, the share of
drafted bytes that it keeps misses the rates by some per cent. The numbers follow from the seed
alone, so a seed under which the rates are met is found without running a model.
"""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bytelax.decode import Draft, Emitted, follow, is_drafted, sampling
from experiments import study

SEEDS = 512  # that are tried
TOLERANCE = 0.01  # of the acceptance asked for
_ROWS = {
    "blt-s 8": ("tiny", "blt-s", {"draft_length": 8}),
    "blt-s 16, predicted": ("tiny", "blt-s", {"draft_length": 16, "latent": "predicted"}),
    "eagle 8": ("tiny", "eagle", {"draft_length": 8}),
    "blt-dv 8, one step": ("tiny-d", "blt-dv", {"block_size": 8, "unmask": "one-step"}),
}


def of_tiny(temperature: float) -> dict[str, tuple[float, ...]]:
    """Acceptance by position of drafters of the bundled BLTs on natural prompts, by method.

    These are shares of the drafts that reached each place; the last rounds of a text are cut short.
    """
    found = {}
    for name, (model, method, options) in _ROWS.items():
        row = study.measured(
            "blt_methods", model=model, method=method, options=options, temperature=temperature
        )
        found[name] = _falling(row["acceptance_by_position"])
    return found


def _falling(places: Sequence[float]) -> tuple[float, ...]:
    return tuple(min([1.0, *places[: place + 1]]) for place in range(len(places)))


def counted(
    rates: Sequence[float], uniforms: np.ndarray, *, start: int, new: int
) -> tuple[np.ndarray, np.ndarray]:
    """Drafted bytes of a text that are kept, and those that could be, by place: i64[places] both.

    As in the statistics, what the end of the text cuts off is neither.

    Args:
      rates: acceptance by position.
      uniforms: f32[start + new], the number that decides a round which begins at this text length.
      start: ids of the prompt, BOS included.
      new: bytes generated.
    """
    kept, drafted, at, end = [], [], start, start + new
    while at < end:
        drafted.append(np.arange(len(rates)) < end - at)
        kept.append((uniforms[at] < np.asarray(rates)) & drafted[-1])
        at += 1 + int(kept[-1].sum())
    return np.sum(kept, axis=0), np.sum(drafted, axis=0)


def uniforms_of(seeds: Sequence[int], width: int, lengths: int) -> np.ndarray:
    """The numbers that decide rounds, f32[seeds, lengths], by seed and text length.

    Args:
      seeds: of rows.
      width: W, number of bytes in a window, on which the numbers depend.
      lengths: how many text lengths, from 0 on.
    """
    seed, length = np.meshgrid(
        np.asarray(seeds, np.uint32), np.arange(lengths, dtype=np.int32), indexing="ij"
    )
    keys = sampling.row_keys(
        jnp.asarray(seed.reshape(-1)), jnp.asarray(length.reshape(-1)), sampling.ACCEPT
    )
    return np.asarray(sampling.row_uniforms(keys, width)[:, 0]).reshape(seed.shape)


def seeds_for(rates: Sequence[float], *, start: int, new: int, texts: int) -> list[int]:
    """Seeds of texts whose replayed acceptance comes nearest to the rates, over all of them.

    A text has a whole number of rounds, so one alone may miss the rates by some per cent.

    Args:
      rates: acceptance by position.
      start: ids of each prompt, BOS included.
      new: bytes generated for each text, in rounds whose drafts are all full.
      texts: number of texts.
    """
    uniforms = uniforms_of(range(SEEDS), len(rates) + 1, start + new)
    by_place = [counted(rates, own, start=start, new=new) for own in uniforms]
    counts = np.sum(by_place, axis=-1)  # kept and drafted, of each seed
    seeds: list[int] = []
    for _ in range(texts):
        left = [seed for seed in range(SEEDS) if seed not in seeds]
        kept, drafted = (counts[seeds].sum(0) + counts[left]).T
        seeds.append(left[int(np.argmin(np.abs(kept / drafted - np.mean(rates))))])
    return seeds


def check(name: str, asked: Sequence[float], acceptance: float) -> None:
    """Raises ValueError if a run did not keep the share of drafted bytes that it was to keep."""
    wanted = float(np.mean(asked))
    if abs(acceptance - wanted) > TOLERANCE * wanted:
        raise ValueError(f"{name} kept {acceptance:.4f} of its drafts where {wanted:.4f} was asked")


@dataclasses.dataclass(frozen=True)
class Replayed:
    """LOSSY: accepts drafts at given rates, whatever bytes they hold. For benchmarks.

    Use it as `generate(..., accept=Replayed(...))`.

    Attributes:
      by_position: probability that the byte at each position is accepted, as in
        `acceptance_by_position` of the statistics. It counts all drafts, so it never increases.

    Raises:
      ValueError: the probabilities increase or lie outside [0, 1].
    """

    by_position: tuple[float, ...]

    def __post_init__(self):
        falls = all(
            a >= b for a, b in zip((1.0, *self.by_position), self.by_position, strict=False)
        )
        if not falls or min(self.by_position, default=0.0) < 0:
            raise ValueError(
                f"acceptance by position falls from at most 1 to at least 0, got {self.by_position}"
            )

    def __call__(
        self, draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
    ) -> Emitted:
        if draft.parents is not None:
            raise ValueError("given acceptance is by place of a chain; this method drafts trees")
        places = draft.ids.shape[1]
        # Nothing is accepted in padding, or beyond the draft length that was measured.
        chances = jnp.asarray((*self.by_position, *[0.0] * places)[:places])
        # One number per row decides how much is kept: P(at least j + 1 bytes) is chances[j].
        kept = is_drafted(draft) & (uniforms[:, 0, :1] < chances)
        return follow(draft, kept.sum(1), log_probs, uniforms[:, 1])
