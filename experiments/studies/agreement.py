"""How often do eight samples of the next byte agree, on held-out text?

Where they agree, a cheap drafter has a chance. The distribution of their largest agreement is
computed exactly from that of the next byte, by bands of its entropy. "Greedy" and "overlap": the
chance that a byte drafted by its draft model is accepted at temperature 0, where both take their
likeliest byte, and at temperature 1. Two flat distributions overlap much, so the overlap falls less
where the next byte is uncertain. "Entropy": bits, as quantiles over positions. "Bits per byte": of
the text under the model.

    python -m experiments.studies.agreement --data DIR
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import load, vocab
from bytelax.decode import Sampling, process_logits
from experiments import study
from experiments.harness.bundled_data import held_out
from experiments.study import Column

DRAWS = 8
CONTEXT, WINDOW = 128, 512  # bytes before the first position of a window; bytes of a window
ROWS = 4  # windows at a time
BANDS = (0.0, 0.5, 1.0, 2.0, 3.0, math.inf)  # of next-byte entropy, in bits
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)
DRAFT_MODELS = {"tiny-lm": "tiny-draft", "small-lm": "small-draft"}
COLUMNS = [
    Column("model", "model"),
    Column("positions", "positions"),
    Column("share", "share", ".1%"),
    Column("all agree", "unanimous", ".1%"),
    Column("at least six", "at_least_6", ".1%"),
    Column("mean", "mean", ".2f"),
    Column("greedy", "greedy", ".1%"),
    Column("overlap", "overlap", ".1%"),
    Column("entropy", "bits", ".3f"),
    Column("bits per byte", "bits_per_byte", ".3f"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--positions", type=int, default=40_000)
    options = options.parse_args()
    texts = held_out(options.data, None)
    models = [*DRAFT_MODELS][: 1 if options.smoke else None]
    count = 1 if options.smoke else options.positions
    study.run(
        "agreement", options,
        [{"model": name, "draft_model": DRAFT_MODELS[name]} for name in models],
        lambda setting: measure(setting, texts, count),
        conditions={"positions": count}, timed=False,
    )  # fmt: skip


def measure(setting: dict, texts: dict[str, bytes], count: int) -> list[dict]:
    """A row for all positions, and for each band of entropy."""
    model, small = (load(setting[name], dtype="float32") for name in ("model", "draft_model"))
    each = -(-count // (len(texts) * (WINDOW - CONTEXT + 1)))
    ids = np.concatenate([windows(text, each) for text in texts.values()])
    parts = [
        of_windows(model.module, small.module, model.params, small.params, ids[at : at + ROWS])
        for at in range(0, len(ids), ROWS)
    ]
    bits, law, overlap, greedy, told = (
        np.concatenate(part).astype(np.float64) for part in zip(*parts, strict=True)
    )
    quantiles = {f"{share:.0%}": np.quantile(bits, share) for share in QUANTILES}
    whole = {"bits": quantiles, "bits_per_byte": told.mean()}
    rows = [{"positions": "all", "share": 1.0, **summary(law, overlap, greedy), **whole}]
    for low, high in itertools.pairwise(BANDS):
        inside = (bits >= low) & (bits < high)
        if inside.any():
            name = f"{low:g} to {high:g} bits" if high < math.inf else f"from {low:g} bits on"
            found = summary(law[inside], overlap[inside], greedy[inside])
            rows.append({"positions": name, "share": inside.mean(), **found})
    return rows


def windows(text: bytes, count: int) -> np.ndarray:
    """i32[count, WINDOW + 1]: evenly spread over the text; the last byte is a target alone."""
    ids = np.array(vocab.encode(text, bos=False), np.int32)
    starts = np.linspace(0, len(ids) - WINDOW - 1, count).astype(int)
    return np.stack([ids[start : start + WINDOW + 1] for start in starts])


@functools.partial(jax.jit, static_argnames="draws")
def agreement_law(probs: jax.Array, *, draws: int) -> jax.Array:
    """f32[N, draws]: the chance that the commonest of `draws` samples comes m = 1..draws times.

    No id x comes more than m times with probability
    `draws! [z^draws] prod_x sum_{c <= m} (p_x z)^c / c!`; the polynomials are multiplied id by id.

    Args:
      probs: f32[N, V], laws.
      draws: samples from each.
    """
    power = jnp.arange(draws + 1)
    factorial = jnp.asarray([math.factorial(n) for n in range(draws + 1)], probs.dtype)
    allowed = power <= 1 + jnp.arange(draws)[:, None]  # [m, c]

    def times(product, p):  # [N, m, n], [N]
        terms = jnp.where(allowed, p[:, None, None] ** power / factorial, 0)
        parts = [(product[..., : n + 1] * terms[..., n::-1]).sum(-1) for n in range(draws + 1)]
        return jnp.stack(parts, axis=-1), None

    one = jnp.zeros((len(probs), draws, draws + 1), probs.dtype).at[..., 0].set(1)
    product, _ = jax.lax.scan(times, one, probs.T)
    at_most = product[..., draws] * factorial[draws]
    return jnp.diff(at_most, axis=1, prepend=0)


@functools.partial(jax.jit, static_argnums=(0, 1))
def of_windows(module, small, params, small_params, ids):
    """For each position: entropy in bits, law of agreement, overlap, whether both models have the
    same likeliest byte, and the bits of the byte that follows.
    """

    def law(module, params):
        logits = module.apply({"params": params}, ids[:, :-1])[:, CONTEXT - 1 :]
        log_probs = process_logits(logits, Sampling.of(len(ids), temperature=1.0))
        return log_probs.reshape(-1, log_probs.shape[-1])

    log_probs = law(module, params)
    probs = jnp.exp(log_probs)
    bits = jnp.where(probs > 0, probs * log_probs, 0).sum(-1) / -math.log(2)
    drafted = law(small, small_params)
    overlap = jnp.minimum(probs, jnp.exp(drafted)).sum(-1)
    greedy = log_probs.argmax(-1) == drafted.argmax(-1)
    told = jnp.take_along_axis(log_probs, ids[:, CONTEXT:].reshape(-1, 1), axis=1)[:, 0]
    return bits, agreement_law(probs, draws=DRAWS), overlap, greedy, told / -math.log(2)


def summary(law: np.ndarray, overlap: np.ndarray, greedy: np.ndarray) -> dict:
    """Means over positions."""
    return {
        "unanimous": law[:, -1].mean(),
        "at_least_6": law[:, 5:].sum(1).mean(),
        "mean": (law @ (1 + np.arange(DRAWS))).mean(),
        "overlap": overlap.mean(),
        "greedy": greedy.mean(),
    }


if __name__ == "__main__":
    main()
