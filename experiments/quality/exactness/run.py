"""Whether lossless methods leave greedy output as it is, on trained models and natural prompts.

    python -m experiments.quality.exactness.run --data DIR

Beside the empty draft at the same batch and window the bytes and their log-probabilities must be
equal bit for bit, and with the compiled kernels of a processor beside plain decoding of the prompt
alone at W = 1 too. Without them another shape rounds differently, so a byte may flip where the two
likeliest are nearly equal: flips are counted, with the margin between the two.
"""

import functools

import jax.numpy as jnp
import numpy as np

from bytelax import load, vocab
from bytelax.measure.timing import Contestant
from experiments.harness import evidence, side_by_side, study
from experiments.harness.bundled_data import prompts

MINUTES = 27
DTYPES = ("float32", "bfloat16")
WINDOW = 9
EIGHT = {"draft_length": 8}
METHODS = {
    "tiny": (
        *(("ar", {"window": window}) for window in (2, 5, 17)),
        ("blt-s", EIGHT),
        ("blt-s", EIGHT | {"draft_with": "lookup"}),
        ("blt-s", EIGHT | {"latent": "predicted"}),
        ("blt-s", EIGHT | {"latent": "predicted", "draft_with": "medusa"}),
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
SMALL = "tiny-draft"


def settings():
    return [
        {"model": model, "dtype": dtype, "method": method, **options}
        for dtype in DTYPES
        for model, methods in METHODS.items()
        for method, options in methods
        # Refused in narrower weights, because rounding may decide there.
        if dtype == "float32" or options.get("verify_from") != "exit"
    ]


class Bench:
    """Prompts, and what plain decoding writes behind them."""

    def __init__(self, texts, *, batch, new):
        self.texts, self.batch, self.new = texts, batch, new
        self.model = functools.cache(lambda name, dtype: load(name, dtype=dtype))
        self.plain = functools.cache(self._plain)
        self.alone = functools.cache(self._alone)

    def _plain(self, name, dtype, window):
        return self.outputs(self.model(name, dtype), "ar", window=window)

    def _alone(self, name, dtype):
        return self.outputs(self.model(name, dtype), "ar", batch=1)

    def outputs(self, model, method, batch=None, **settings):
        own = Contestant(method, {"logprobs": True, **settings})
        return evidence.decoded(
            model, self.texts, own, new=self.new, temperature=0.0, batch=batch or self.batch
        )


def measure(setting, bench):
    """A method beside the empty draft at its window, and beside plain decoding alone at W = 1."""
    options = dict(setting)
    name, dtype, method = (options.pop(key) for key in ("model", "dtype", "method"))
    model = bench.model(name, dtype)
    if method == "draft-model":
        options["draft_model"] = bench.model(SMALL, dtype)
    # A tree has its own window, of its nodes and the byte before them.
    tree = "nodes" in options
    window = options["nodes"] + 1 if tree else options.pop("window", WINDOW)
    out = bench.outputs(model, method, **options, **({} if tree else {"window": window}))
    same = bench.plain(name, dtype, window)
    alone = bench.alone(name, dtype)
    margins = flips(model, bench.texts, alone, out)
    return {
        "bitwise_equal_at_the_same_window": same_bits(out, same),
        "equal_at_the_same_window": evidence.same_outputs(out, same),
        "bitwise_equal_alone": same_bits(out, alone),
        "equal_alone": len(out) - len(margins),
        "margins_of_flips_nats": margins,
    }


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
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--prompts", type=int, default=200)
    options.add_argument("--context", type=int, default=128, help="bytes of a prompt")
    options.add_argument("--batch", type=int, default=50)
    options.add_argument("--new", type=int, default=64, help="bytes generated a prompt")
    options = options.parse_args()
    count, new = (2, 8) if options.smoke else (options.prompts, options.new)
    texts = [text for _, text in prompts(options.data, count, options.context)]
    bench = Bench(texts, batch=options.batch, new=new)
    study.run(
        options.results / "results.json",
        {"prompts": count, "prompt_bytes": options.context, "batch": options.batch,
         "new_bytes": new},
        settings()[3:4] if options.smoke else settings(),
        lambda setting: measure(setting, bench),
        markdown=markdown,
    )  # fmt: skip


def named(setting):
    """A method with its options, as a table shows it."""
    options = {k: v for k, v in setting.items() if k not in ("model", "dtype", "method")}
    return ", ".join(filter(None, (setting["method"], side_by_side.named(options))))


def markdown(report):
    rows = [
        (
            row["setting"]["model"],
            named(row["setting"]),
            row["setting"]["dtype"],
            *(
                f"{row[name]}/{report['prompts']}"
                for name in (
                    "bitwise_equal_at_the_same_window",
                    "equal_at_the_same_window",
                    "bitwise_equal_alone",
                    "equal_alone",
                )
            ),
            ", ".join(f"{margin:.1e}" for margin in row["margins_of_flips_nats"]),
        )
        for row in report["rows"]
    ]
    header = (
        "model", "method", "weights", "bit for bit", "same bytes", "alone, bit for bit",
        "alone, same bytes", "margins of flips",
    )  # fmt: skip
    return "\n".join(
        [
            "# Greedy output of lossless methods",
            "",
            f"{report['prompts']} held-out prompts of {report['prompt_bytes']} bytes over five "
            f"genres, {report['new_bytes']} new bytes, {report['batch']} at a time; "
            f"{report['machine']}. Bit for bit: bytes and log-probabilities, beside the empty "
            f"draft in windows of {WINDOW} bytes, of those of `ar`, or of a tree's nodes; same "
            "bytes: beside the same, without the log-probabilities. Alone: beside plain decoding "
            "of the prompt alone at W = 1; where a byte flips, the margin of the two likeliest in "
            "nats ([why](../../../docs/exactness.md)).",
            "",
            *study.table(header, rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
