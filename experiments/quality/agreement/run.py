"""How often do eight samples of the next byte agree, on real text?

    python -m experiments.quality.agreement.run --data DIR

Where they agree, a cheap drafter has a chance: the byte is nearly decided by what came before. For
every position of held-out text the law of eight samples' largest agreement is computed exactly from
the model's law of the next byte, and eight samples are drawn beside it as a check. Beside it stands
the chance that a byte drafted by a draft model is accepted: at temperature 0, where both take their
likeliest byte ("greedy"), and at temperature 1, where it is the overlap of the two laws. Two flat
laws overlap much, so the overlap hardly falls where the next byte is uncertain; the greedy match
does. Continuations of a few bytes are sampled alone.
"""

import collections
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import generate, load, vocab
from bytelax.decode import Sampling, process_logits
from experiments.harness import study
from experiments.harness.bundled_data import held_out

MINUTES = 2
DRAWS = 8
CONTEXT, WINDOW = 128, 512  # bytes before the first position of a window; bytes of a window
ROWS = 4  # windows at a time
STEMS = 10  # prompts at a time, each in eight rows
BANDS = (0.0, 0.5, 1.0, 2.0, 3.0, math.inf)  # of next-byte entropy, in bits
# Veritate, a byte transformer of 85M parameters and 12 layers; its text is not published.
PUBLISHED = {"unanimous": 0.562, "at_least_6": 0.74, "mean_below_0.5_bit": 7.95}


@functools.partial(jax.jit, static_argnames="draws")
def agreement_law(probs, *, draws):
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


def windows(text, count):
    """i32[count, WINDOW + 1]: evenly spread over the text; the last byte is a target alone."""
    ids = np.array(vocab.encode(text, bos=False), np.int32)
    starts = np.linspace(0, len(ids) - WINDOW - 1, count).astype(int)
    return np.stack([ids[start : start + WINDOW + 1] for start in starts])


@functools.partial(jax.jit, static_argnums=(0, 1))
def of_windows(module, small, params, small_params, ids, key):
    """For each position: nats of the byte, entropy in bits, law of agreement, commonest of those
    drawn, overlap, and whether both models have the same likeliest byte.
    """

    def law(module, params):
        logits = module.apply({"params": params}, ids[:, :-1])[:, CONTEXT - 1 :]
        log_probs = process_logits(logits, Sampling.of(len(ids), temperature=1.0))
        return log_probs.reshape(-1, log_probs.shape[-1])

    log_probs = law(module, params)
    target = ids[:, CONTEXT:].reshape(-1)
    nats = -jnp.take_along_axis(log_probs, target[:, None], axis=-1)[:, 0]
    probs = jnp.exp(log_probs)
    bits = jnp.where(probs > 0, probs * log_probs, 0).sum(-1) / -math.log(2)
    drawn = jax.random.categorical(key, log_probs, shape=(DRAWS, len(log_probs)))
    commonest = (drawn[:, None] == drawn).sum(0).max(0)
    drafted = law(small, small_params)
    overlap = jnp.minimum(probs, jnp.exp(drafted)).sum(-1)
    greedy = log_probs.argmax(-1) == drafted.argmax(-1)
    return nats, bits, agreement_law(probs, draws=DRAWS), commonest, overlap, greedy


def positions(model, small, ids):
    """What `of_windows` finds, position by position, in float64."""
    parts = [
        of_windows(
            model.module, small.module, model.params, small.params, ids[begin : begin + ROWS],
            jax.random.key(begin),
        )
        for begin in range(0, len(ids), ROWS)
    ]  # fmt: skip
    return [np.concatenate(part).astype(np.float64) for part in zip(*parts, strict=True)]


def summary(law, commonest, overlap, greedy):
    """Shares of positions and means, computed from the laws, and as sampled."""
    times = 1 + np.arange(DRAWS)
    return {
        "unanimous": float(law[:, -1].mean()),
        "at_least_6": float(law[:, 5:].sum(1).mean()),
        "mean": float((law @ times).mean()),
        "overlap": float(overlap.mean()),
        "greedy": float(greedy.mean()),
        "sampled": {
            "unanimous": float((commonest == DRAWS).mean()),
            "at_least_6": float((commonest >= 6).mean()),
            "mean": float(commonest.mean()),
        },
    }


def by_band(bits, *found):
    rows = []
    for low, high in itertools.pairwise(BANDS):
        inside = (bits >= low) & (bits < high)
        rows.append(
            {"bits": [low, None if high == math.inf else high], "share": float(inside.mean())}
            | (summary(*(each[inside] for each in found)) if inside.any() else {})
        )
    return rows


def correlations(law, commonest, overlap, greedy):
    """Of the expected largest agreement with the two chances of acceptance, over positions."""
    mean = law @ (1 + np.arange(DRAWS))
    return {
        name: float(np.corrcoef(mean, chance)[0, 1])
        for name, chance in (("overlap", overlap), ("greedy", greedy))
    }


def continuations(model, texts, *, new, prompts):
    """Agreement of sampled continuations of 1..`new` bytes, behind prompts of CONTEXT bytes."""
    stems = []
    for text in texts.values():
        starts = np.linspace(0, len(text) - CONTEXT, prompts // len(texts)).astype(int)
        stems += [text[start : start + CONTEXT] for start in starts]
    written = []
    for begin in range(0, len(stems), STEMS):
        repeated = [stem for stem in stems[begin : begin + STEMS] for _ in range(DRAWS)]
        seeds = [DRAWS * begin + row for row in range(len(repeated))]
        out = generate(model, repeated, max_new_bytes=new, temperature=1.0, seeds=seeds)
        written += [out.bytes[row : row + DRAWS] for row in range(0, len(repeated), DRAWS)]
    rows = []
    for length in range(1, new + 1):
        commonest = np.array(
            [collections.Counter(b[:length] for b in row).most_common(1)[0][1] for row in written]
        )
        rows.append(
            {
                "bytes": length,
                "unanimous": float((commonest == DRAWS).mean()),
                "at_least_6": float((commonest >= 6).mean()),
                "mean": float(commonest.mean()),
            }
        )
    return {"prompts": len(stems), "prompt_bytes": CONTEXT, "rows": rows}


def measure(model, small, texts, *, count, new, prompts):
    """All figures; `count` positions or a few more, as many from each text."""
    each = -(-count // (len(texts) * (WINDOW - CONTEXT + 1)))
    found = {name: positions(model, small, windows(text, each)) for name, text in texts.items()}
    nats, bits, *rest = (np.concatenate(part) for part in zip(*found.values(), strict=True))
    return {
        "positions": len(bits),
        "context_bytes": [CONTEXT, WINDOW],
        "temperature": 1.0,
        "bits_per_byte": float(nats.mean() / math.log(2)),
        "entropy_bits": float(bits.mean()),
        "published": PUBLISHED,
        "all": summary(*rest),
        "correlations": correlations(*rest),
        "bands": by_band(bits, *rest),
        "texts": {
            name: {"bits_per_byte": float(part[0].mean() / math.log(2)), **summary(*part[2:])}
            for name, part in found.items()
        },
        "continuations": continuations(model, texts, new=new, prompts=prompts),
    }


def markdown(report):
    (found,) = report["rows"]
    shares = ("unanimous %", "at least 6 of 8 %", "mean of 8")
    chances = ("greedy %", "overlap %")

    def cells(row):
        shown = f"{100 * row['unanimous']:.1f}", f"{100 * row['at_least_6']:.1f}"
        accepted = [f"{100 * row[name]:.1f}" for name in ("greedy", "overlap") if name in row]
        return (*shown, f"{row['mean']:.2f}", *accepted)

    bands = [
        ("all", "100", *cells(found["all"])),
        ("all, as drawn", "100", *cells(found["all"]["sampled"]), None, None),
        ("all, published", "100", "56.2", "74", None, None, None),
    ]
    for row in found["bands"]:
        low, high = row["bits"]
        name = f"{low:g} to {high:g} bits" if high else f"from {low:g} bits on"
        if row["share"]:
            bands.append((name, f"{100 * row['share']:.1f}", *cells(row)))
    bands.append(("below 0.5 bit, published", None, None, None, "7.95", None, None))
    texts = [
        (name, f"{row['bits_per_byte']:.3f}", *cells(row)) for name, row in found["texts"].items()
    ]
    more = found["continuations"]
    return "\n".join(
        [
            f"# Agreement of {DRAWS} samples of the next byte",
            "",
            f"Model `{found['setting']['model']}`, {report['parameters']:,} parameters, float32, "
            f"temperature 1, on {found['positions']:,} positions of held-out text, "
            f"{found['bits_per_byte']:.3f} bits per byte. Computed from the model's laws; drawn "
            "samples are beside them as a check. Greedy and overlap: the chance that a byte "
            f"drafted by `{found['setting']['draft_model']}` is accepted at temperature 0 and at "
            "1. The published figures are those of another model, of 85M parameters, on "
            "text that is not published.",
            "",
            *study.table(("positions", "share %", *shares, *chances), bands),
            "",
            "Over positions, the mean of eight has a correlation of "
            f"{found['correlations']['greedy']:.2f} with the greedy match and of "
            f"{found['correlations']['overlap']:.2f} with the overlap.",
            "",
            *study.table(("text", "bits per byte", *shares, *chances), texts),
            "",
            f"Eight sampled continuations of {more['prompts']} prompts of {more['prompt_bytes']} "
            "bytes each:",
            "",
            *study.table(
                ("first bytes", *shares), [(row["bytes"], *cells(row)) for row in more["rows"]]
            ),
            "",
        ]
    )


def main():
    options = study.parser(__doc__, __file__, model="tiny-lm")
    options.add_argument("--draft-model", default="tiny-draft")
    options.add_argument("--positions", type=int, default=40_000)
    options.add_argument("--new", type=int, default=4, help="bytes of a continuation")
    options.add_argument("--prompts", type=int, default=100)
    options = options.parse_args()
    model, small = (load(name, dtype="float32") for name in (options.model, options.draft_model))
    how = {"count": options.positions, "new": options.new, "prompts": options.prompts}
    if options.smoke:
        how = {"count": 1, "new": 2, "prompts": 5}
    study.run(
        options.results / "results.json",
        how | {"parameters": sum(x.size for x in jax.tree.leaves(model.params))},
        [{"model": options.model, "draft_model": options.draft_model}],
        lambda setting: measure(model, small, held_out(options.data, None), **how),
        markdown=markdown,
        timed=False,
    )


if __name__ == "__main__":
    main()
