"""Whether lossless methods leave greedy output as it is, on trained models and natural prompts.

"Bit for bit": outputs whose bytes and log-probabilities equal those of the empty draft at the same
batch and window. "Alone": compared with plain decoding of the prompt alone, one byte a pass;
without the compiled kernels another shape rounds differently, so a byte may flip where the two
likeliest are nearly equal. The last column has the margin between the two at each flip, in nats.

    python -m experiments.studies.exactness --data DIR
"""

import functools

import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from experiments import evidence, study
from experiments.harness.bundled_data import prompts
from experiments.study import Column

WINDOW = 9
EIGHT = {"draft_length": 8}
METHODS = {
    "tiny": (
        *(("ar", {"window": window}) for window in (2, 5, 17)),
        ("blt-s", EIGHT),
        ("blt-s", EIGHT | {"latent": "predicted"}),
        ("eagle", EIGHT),
        ("lookup", EIGHT),
        ("draft-model", EIGHT),
    ),
    "tiny-d": (
        ("blt-dv", {"block_size": 8, "unmask": "one-step"}),
        ("blt-dv", {"block_size": 8, "unmask": "confidence", "alpha": 0.3}),
    ),
    "tiny-lm": (
        ("early-exit", {"exit_layer": 6, "verify_from": "embedding", **EIGHT}),
        ("early-exit", {"exit_layer": 6, "verify_from": "exit", **EIGHT}),
        ("composed", {"exit_layer": 6, "verify_from": "embedding", **EIGHT}),
        ("layer-skip", EIGHT),
        ("two-byte", {"state_layer": 12}),
        ("medusa", {}),
        ("medusa", {"branches": (3, 2, 1), "nodes": 8}),
        ("eagle", EIGHT),
        ("lookup", EIGHT),
        ("draft-model", EIGHT),
    ),
}
COLUMNS = [
    Column("model", "model"),
    Column("method", "method"),
    Column("options", "options"),
    Column("weights", "dtype"),
    Column("outputs", "outputs"),
    Column("bit for bit", "same_bits"),
    Column("same bytes", "same_bytes"),
    Column("alone, bit for bit", "same_bits_alone"),
    Column("alone, same bytes", "same_bytes_alone"),
    Column("margins of flips", "margins", ".1e"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--prompts", type=int, default=200)
    options.add_argument("--context", type=int, default=128, help="bytes of a prompt")
    options.add_argument("--batch", type=int, default=50)
    options.add_argument("--new", type=int, default=64, help="bytes generated for each prompt")
    options = options.parse_args()
    if options.smoke:
        options.prompts, options.new = 2, 8
    settings = [
        {"model": model, "dtype": dtype, "method": method, "options": chosen}
        for dtype in ("float32", "bfloat16")
        for model, methods in METHODS.items()
        for method, chosen in methods
        # Not allowed in narrower weights, because rounding may decide there.
        if dtype == "float32" or chosen.get("verify_from") != "exit"
    ]
    texts = [text for _, text in prompts(options.data, options.prompts, options.context)]

    @functools.cache
    def plain(name, dtype, window, batch):
        settings = {} if window is None else {"window": window}
        return outputs(name, dtype, "ar", batch, **settings)

    def outputs(name, dtype, method, batch, **chosen):
        own = evidence.contestant(method, {"logprobs": True, **chosen}, dtype)
        model = evidence.loaded(name, dtype=dtype)
        return evidence.decoded(model, texts, own, new=options.new, temperature=0.0, batch=batch)

    def measure(setting):
        name, dtype, method = (setting[key] for key in ("model", "dtype", "method"))
        chosen = dict(setting["options"])
        # A tree has its own window, of its nodes and the byte before them.
        tree = "nodes" in chosen
        window = chosen["nodes"] + 1 if tree else chosen.pop("window", WINDOW)
        if not tree:
            chosen["window"] = window
        out = outputs(name, dtype, method, options.batch, **chosen)
        same = plain(name, dtype, window, options.batch)
        alone = plain(name, dtype, None, 1)
        return {
            "outputs": len(out),
            "same_bits": same_bits(out, same),
            "same_bytes": evidence.same_outputs(out, same),
            "same_bits_alone": same_bits(out, alone),
            "same_bytes_alone": evidence.same_outputs(out, alone),
            "margins": margins(evidence.loaded(name, dtype=dtype), texts, alone, out),
        }

    study.run(
        "exactness", options, settings[3:4] if options.smoke else settings, measure,
        conditions={name: getattr(options, name) for name in ("context", "batch", "new")},
    )  # fmt: skip


def same_bits(a, b) -> int:
    return sum(
        x.bytes == y.bytes and np.array_equal(x.log_probs, y.log_probs)
        for x, y in zip(a, b, strict=True)
    )


def margins(model, texts, a, b) -> list[float]:
    """Margins, in nats, between the two likeliest bytes where two outputs first differ."""
    found = []
    for text, x, y in zip(texts, a, b, strict=True):
        if x.bytes == y.bytes:
            continue
        same = next(i for i, (p, q) in enumerate(zip(x.bytes, y.bytes, strict=True)) if p != q)
        ids = jnp.asarray([vocab.encode(text + x.bytes[:same])])
        logits = np.sort(np.asarray(model.logits(ids))[0, -1])
        found.append(float(logits[-1] - logits[-2]))
    return found


if __name__ == "__main__":
    main()
