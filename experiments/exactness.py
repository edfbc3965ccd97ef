"""Whether lossless methods leave greedy output as it is, on a trained model and real prompts.

    python experiments/exactness.py --data DIR

Beside the empty draft at the same batch and window the bytes and their log-probabilities must be
equal bit for bit. Beside plain decoding at W = 1 another shape rounds differently, so a byte may
flip where the two likeliest are nearly equal: flips are counted, with the margin between the two.
"""

import argparse
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from blt_methods import prompts

from bytelax import generate, load, vocab

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("experiments/results"))
    options = parser.parse_args()
    texts = prompts(options.data, options.prompts)
    report = {"prompts": len(texts), "batch": options.batch, "new_bytes": options.new}
    for dtype in ("float32", "bfloat16"):
        model = load(options.model, dtype=dtype)
        new = {"max_new_bytes": options.new, "batch": options.batch}
        padded = outputs(model, texts, method="ar", window=9, **new)
        plain = outputs(model, texts, method="ar", **new)
        for name, settings in METHODS.items():
            out = outputs(model, texts, method=name.split(",")[0], **settings, **new)
            margins = flips(model, texts, plain, out)
            report[f"{name}, {dtype}"] = {
                "bitwise_equal_at_the_same_window": same_bits(out, padded),
                "equal_to_window_1": len(texts) - len(margins),
                "margins_of_flips_nats": margins,
            }
            print(name, dtype, report[f"{name}, {dtype}"], flush=True)
    report["jax"] = jax.__version__
    options.results.mkdir(exist_ok=True)
    (options.results / "exactness.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
