"""Whether lossless methods leave greedy output as it is, on a trained model and real prompts.

    python -m experiments.quality.exactness.run --data DIR

Beside the empty draft at the same batch and window the bytes and their log-probabilities must be
equal bit for bit. Beside plain decoding at W = 1 another shape rounds differently, so a byte may
flip where the two likeliest are nearly equal: flips are counted, with the margin between the two.
"""

import jax.numpy as jnp
import numpy as np

from bytelax import generate, load, vocab
from experiments.harness import side_by_side, study

MINUTES = 15
DTYPES = ("float32", "bfloat16")
WINDOW = 9
METHODS = {
    "blt-s": {"draft_length": 8},
    "blt-dv": {"block_size": 8, "unmask": "one-step"},
    "blt-dv, confidence": {"block_size": 8, "unmask": "confidence", "alpha": 0.3},
}


def outputs(model, texts, batch, **options):
    out = []
    for begin in range(0, len(texts), batch):
        part = texts[begin : begin + batch]
        out += generate(model, part, allow_eos=False, logprobs=True, **options).results
    return out


def same_bits(a, b):
    return sum(
        x.bytes == y.bytes and np.array_equal(x.log_probs, y.log_probs)
        for x, y in zip(a, b, strict=True)
    )


def flips(model, texts, a, b):
    """Margins, in nats, between the two likeliest bytes where two outputs first differ."""
    margins = []
    for text, x, y in zip(texts, a, b, strict=True):
        if x.bytes == y.bytes:
            continue
        same = next(i for i, (p, q) in enumerate(zip(x.bytes, y.bytes, strict=True)) if p != q)
        ids = jnp.asarray([vocab.encode(text + x.bytes[:same])])
        logits = np.sort(np.asarray(model.logits(ids))[0, -1])
        margins.append(float(logits[-1] - logits[-2]))
    return margins


def measure(model, texts, batch, new):
    """Every method beside the empty draft at its window, and beside plain decoding at W = 1."""
    how = {"max_new_bytes": new, "batch": batch}
    plain = outputs(model, texts, method="ar", **how)
    padded = outputs(model, texts, method="ar", window=WINDOW, **how)
    methods = {}
    for name, settings in METHODS.items():
        out = outputs(model, texts, method=name.split(",")[0], **settings, **how)
        margins = flips(model, texts, plain, out)
        methods[name] = {
            "bitwise_equal_at_the_same_window": same_bits(out, padded),
            "equal_to_window_1": len(texts) - len(margins),
            "margins_of_flips_nats": margins,
        }
    return {"methods": methods}


def main():
    options = study.parser(__doc__, __file__)
    options.add_argument("--prompts", type=int, default=200)
    options.add_argument("--batch", type=int, default=50)
    options.add_argument("--new", type=int, default=64, help="bytes generated a prompt")
    options = options.parse_args()
    count, new = (2, 8) if options.smoke else (options.prompts, options.new)
    texts = side_by_side.prompts(options.data, count)
    study.run(
        options.results / "results.json",
        {"model": options.model, "prompts": count, "batch": options.batch, "new_bytes": new},
        [{"dtype": dtype} for dtype in (("float32",) if options.smoke else DTYPES)],
        lambda setting: measure(
            load(options.model, dtype=setting["dtype"]), texts, options.batch, new
        ),
        markdown=markdown,
    )


def markdown(report):
    rows = [
        (
            name,
            row["setting"]["dtype"],
            f"{figures['bitwise_equal_at_the_same_window']}/{report['prompts']}",
            f"{figures['equal_to_window_1']}/{report['prompts']}",
            ", ".join(f"{margin:.1e}" for margin in figures["margins_of_flips_nats"]),
        )
        for row in report["rows"]
        for name, figures in row["methods"].items()
    ]
    return "\n".join(
        [
            "# Greedy output of lossless methods",
            "",
            f"`{report['model']}`, {report['prompts']} held-out prompts, {report['new_bytes']} new "
            f"bytes, {report['batch']} at a time. Bit for bit: bytes and log-probabilities, beside "
            f"the empty draft in windows of {WINDOW} bytes. Beside W = 1 only bytes; where one "
            "flips, the margin of the two likeliest in nats.",
            "",
            *study.table(
                ("method", "weights", "bit for bit", "bytes of W = 1", "margins of flips"), rows
            ),
            "",
        ]
    )


if __name__ == "__main__":
    main()
