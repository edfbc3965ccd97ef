"""Searches for the blocks that a byte transformer should skip when it drafts for itself.

    python -m experiments.speed.self_drafting.layers TEXT ... --place-cost 0.15

Draft & Verify (arXiv 2309.08168) searches with Bayesian optimisation over timed runs. Here every
half-block is tried in turn, and the speed of a set is computed: from the acceptance rate of its
drafts, measured in one parallel pass over sample text, and the weights that drafting reads.
"""

import argparse
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bytelax import load
from bytelax.decode.sampling import Sampling, process_logits
from bytelax.measure.patch_lengths import text_windows
from bytelax.model import Model
from bytelax.models.byte_lm import ByteLM, ByteLMConfig

_ROWS = 8  # windows that go through the model at a time


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A set of half-blocks to skip, and its predicted speed. The unit of cost is one full pass.

    Attributes:
      skip_attention: blocks whose attention is skipped, counted from 0.
      skip_mlp: blocks whose SwiGLU is skipped.
      draft_length: K, the best draft length.
      accepted: share of first drafted bytes that are accepted.
      bytes_per_round: expected bytes per round with K drafted ones, including the model's own byte.
      drafting: weights that a drafting pass reads, as a share of all weights.
      speed: bytes in the time of one full pass; plain decoding has 1.
    """

    skip_attention: tuple[int, ...]
    skip_mlp: tuple[int, ...]
    draft_length: int
    accepted: float
    bytes_per_round: float
    drafting: float
    speed: float

    def options(self) -> dict:
        """Returns the options for `generate(..., method="layer-skip")`."""
        names = ("skip_attention", "skip_mlp", "draft_length")
        return {name: getattr(self, name) for name in names}


def search(
    model: Model,
    ids: Int[np.ndarray, "B S"],
    *,
    temperature: float = 0.0,
    longest: int = 12,
    most: int | None = None,
    place_cost: float = 0.0,
) -> list[Skipped]:
    """Finds half-blocks to skip greedily: each step skips the one that leaves the highest speed.

    All candidates of a step run in one program, which is the same for every step.

    Args:
      model: a byte transformer.
      ids: windows of sample text; S must be above `longest`.
      temperature: sampling temperature to optimise for; 0 is greedy.
      longest: maximum draft length.
      most: maximum number of half-blocks to skip; None continues until none is left.
      place_cost: cost that each drafted byte adds to a verifying pass, as a share of a full pass.

    Returns:
      The sets of 1, 2, ... half-blocks. The best is `max(..., key=lambda skipped: skipped.speed)`.

    Raises:
      ValueError: the model is not a byte transformer, or an argument is out of range.
    """
    if not isinstance(model.module, ByteLM):
        raise ValueError("only a byte transformer has blocks to skip, not a Byte Latent one")
    if not 1 <= longest < ids.shape[1]:
        raise ValueError(f"drafts lie in 1..{ids.shape[1] - 1}, for windows of that many bytes")
    if place_cost < 0:
        raise ValueError(f"place_cost must be at least 0, got {place_cost}")
    shares, always = weight_shares(model)
    runs, found = np.ones(shares.shape, bool), []
    sampling = Sampling.of(1, temperature=temperature)
    probs = _probs(model.module, model.params, ids, sampling)
    for _ in range(runs.size if most is None else min(most, runs.size)):
        candidates = [(half, block) for half, block in np.ndindex(runs.shape) if runs[half, block]]
        without = np.repeat(runs[None], runs.size, axis=0)
        for tried, (half, block) in zip(without, candidates, strict=False):
            tried[half, block] = False
        survival = _survival(
            model.module,
            model.params,
            ids,
            probs,
            without,
            len(candidates),
            sampling,
            longest=longest,
        )
        tried = [
            score(one, chances, always + (shares * one).sum(), place_cost)
            for one, chances in zip(without, np.asarray(survival), strict=True)
        ][: len(candidates)]
        best = max(range(len(tried)), key=lambda index: tried[index].speed)
        runs = without[best]
        found.append(tried[best])
    return found


def score(
    runs: Bool[np.ndarray, "2 L"],
    survival: Float[np.ndarray, " K"],
    drafting: float,
    place_cost: float = 0.0,
) -> Skipped:
    """Predicts the speed of a set of half-blocks at its best draft length, at most K.

    Args:
      runs: which half-blocks still run, attention first.
      survival: probability that the first 1..K drafted bytes are all accepted.
      drafting: cost of a drafting pass.
      place_cost: cost that each drafted byte adds to the verifying pass, which costs 1.
    """
    length = 1 + np.arange(len(survival))
    made = 1 + np.cumsum(survival, dtype=np.float64)
    speed = made / (1 + length * (drafting + place_cost))
    best = int(speed.argmax())
    attention, mlp = (tuple(np.flatnonzero(~half).tolist()) for half in runs)
    return Skipped(
        skip_attention=attention,
        skip_mlp=mlp,
        draft_length=best + 1,
        accepted=float(survival[0]),
        bytes_per_round=float(made[best]),
        drafting=float(drafting),
        speed=float(speed[best]),
    )


def weight_shares(model: Model) -> tuple[Float[np.ndarray, "2 L"], float]:
    """Returns the share of each half-block in the weights of a pass, attention first, and the rest.

    Norms count with the layer after them. The embedding does not count, since a pass reads one row
    of it.
    """

    def size(tree, *names):
        return sum(x.size for name in names for x in jax.tree.leaves(tree[name]))

    assert isinstance(model.config, ByteLMConfig)
    trunk = model.params["trunk"]
    blocks = [trunk[f"layers_{index}"] for index in range(model.config.trunk.layers)]
    halves = np.array(
        [[size(block, f"{half}_norm", half) for block in blocks] for half in ("attention", "mlp")]
    )
    rest = size(model.params, "norm", "head")
    return halves / (halves.sum() + rest), float(rest / (halves.sum() + rest))


@functools.partial(jax.jit, static_argnums=0)
def _probs(module, params, ids, sampling) -> Float[Array, "B S V"]:
    """Returns the full model's distribution of the next byte at every position."""

    def of_row(row):
        return jnp.exp(process_logits(module.apply({"params": params}, row[None]), sampling))[0]

    return jax.lax.map(of_row, ids, batch_size=_ROWS)


@functools.partial(jax.jit, static_argnums=0, static_argnames="longest")
def _survival(
    module, params, ids, probs, candidates, count, sampling, *, longest
) -> Float[Array, "C K"]:
    """Returns `survival` of `score` for the first `count` candidates bool[C, 2, L], and else 0."""

    def of_row(runs, row, p):
        logits = module.apply({"params": without(params, runs)}, row[None])
        # Rejection sampling accepts a draft from q with probability sum_x min(p(x), q(x)). Greedy
        # distributions are one-hot, so there it is 1 if they agree, and 0 otherwise.
        accepted = jnp.minimum(p, jnp.exp(process_logits(logits, sampling))[0]).sum(-1)
        begins = len(row) - longest + 1
        ahead = jnp.stack([accepted[place : place + begins] for place in range(longest)])
        return jnp.cumprod(ahead, axis=0).mean(1)

    def of_candidate(candidate):
        index, runs = candidate

        def measured():
            rows = jax.lax.map(lambda row: of_row(runs, *row), (ids, probs), batch_size=_ROWS)
            return rows.mean(0)

        return jax.lax.cond(index < count, measured, lambda: jnp.zeros(longest))

    return jax.lax.map(of_candidate, (jnp.arange(len(candidates)), candidates))


def without(params, runs):
    """The parameters with half-blocks that add nothing where `runs` bool[2, L] is false.

    `runs` is data, so that one program serves all sets.
    """
    trunk = dict(params["trunk"])
    for half, (name, out) in enumerate((("attention", "out"), ("mlp", "down"))):
        for index in range(runs.shape[1]):
            block = trunk[f"layers_{index}"]
            silent = jax.tree.map(lambda x, here=runs[half, index]: here * x, block[name][out])
            trunk[f"layers_{index}"] = block | {name: block[name] | {out: silent}}
    return params | {"trunk": trunk}


def main():
    options = argparse.ArgumentParser(description="Searches for blocks to skip.")
    options.add_argument("text", nargs="+", help="files, directories or globs of sample text")
    options.add_argument("--model", default="tiny-lm")
    options.add_argument("--temperature", type=float, default=0.0)
    options.add_argument("--longest", type=int, default=12, help="most bytes to draft in a round")
    options.add_argument("--most", type=int, help="most half-blocks to skip")
    options.add_argument("--place-cost", type=float, default=0.0, help="see `search`")
    options.add_argument("--window", type=int, default=256)
    options.add_argument("--max-bytes", type=int, default=8192)
    options = options.parse_args()
    windows, lengths = text_windows(options.text, options.window, options.max_bytes)
    steps = search(
        load(options.model, dtype="float32"),
        windows[lengths == options.window],
        temperature=options.temperature,
        longest=options.longest,
        most=options.most,
        place_cost=options.place_cost,
    )
    for skipped in steps:
        print(
            f"speed {skipped.speed:.2f}, {skipped.bytes_per_round:.2f} bytes per round, drafting "
            f"{skipped.drafting:.0%}: {skipped.options()}"
        )
    print("best:", max(steps, key=lambda skipped: skipped.speed).options())


if __name__ == "__main__":
    main()
