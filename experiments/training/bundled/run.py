"""What the bundled models know: bits per byte on held-out text beside compressors, what the joint
loss of the BLT-D cost, what the latents of the BLTs are worth, and samples.

    python -m experiments.training.bundled.run --data DIR --continued runs/tiny-more

A compressor knows nothing before the file and adapts to it; a model learned other text before and
sees its own window only. The two are printed side by side as a scale, not as a race.
"""

import json
import math
import pathlib
import subprocess

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import generate, load, vocab
from bytelax.models.blt import BLT
from experiments.harness import intervals, latent_costs, study
from experiments.harness.bundled_data import SPLITS, VALID, held_out

CONTEXT, STRIDE = 1024, 512
ABLATED = 16  # windows of each text, of CONTEXT bytes
PATCHES = 640  # room for those of a context
PROMPTS = [
    "The cell membrane is a thin layer that",
    "def read_lines(path):\n    ",
    "de: Ich habe heute keine Zeit.\nen:",
]


def bits_of_stretches(model, text):
    """Bits and bytes of every stretch of a text, in order.

    Every byte is scored once, behind at least CONTEXT - STRIDE bytes where there are so many.
    """
    ids = np.array(vocab.encode(text), np.int32)
    starts = range(0, max(len(ids) - CONTEXT + STRIDE, 1), STRIDE)
    bits, counts = [], []
    score = _scorer(model)
    for start in starts:
        window = ids[start : start + CONTEXT + 1]
        padded = np.zeros(CONTEXT + 1, np.int32)
        padded[: len(window)] = window
        begin = 0 if start == 0 else CONTEXT - STRIDE
        scored, patches = score(model.params, padded[None])
        assert int(patches[0, : len(window)].sum()) <= PATCHES
        each = np.asarray(scored)[0, begin : len(window) - 1]
        bits.append(each.sum(dtype=np.float64) / math.log(2))
        counts.append(len(each))
    assert sum(counts) == len(text)
    return np.array(bits), np.array(counts)


def _scorer(model):
    @jax.jit
    def score(params, ids):
        logits, closes = model.module.apply(
            {"params": params}, ids[:, :-1], max_patches=PATCHES, method="predict"
        )
        if closes is None:
            closes = jnp.zeros((1, CONTEXT), bool)
        log_probs = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(log_probs, ids[:, 1:, None], axis=-1)[..., 0], closes

    return score


def more(own, plain):
    """Bits per byte that `own` takes more than `plain`, with intervals over stretches of text."""
    return {
        text: intervals.of_ratio(bits - plain[text][0], counts)
        for text, (bits, counts) in own.items()
    }


def compressed(text, command):
    return 8 * len(subprocess.run(command, input=text, capture_output=True, check=True).stdout)


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--models", nargs="*", default=["tiny", "tiny-d", "tiny-lm", "tiny-draft"])
    options.add_argument("--continued", help="`tiny` trained on plainly, for as long as `tiny-d`")
    options.add_argument("--split", choices=SPLITS, default=VALID, help="files of the text")
    options.add_argument("--bytes", type=int, default=100_000, help="of each text, at most")
    options = options.parse_args()
    models, most, new = options.models, options.bytes, 200
    if options.smoke:
        models, most, new = ["tiny", "tiny-draft"], CONTEXT + 1, 2
    texts = held_out(options.data, most, options.split)
    report = {"bytes": {name: len(text) for name, text in texts.items()}, "bits_per_byte": {}}
    report |= {"split": options.split, "intervals": {}, "latents": {}, "samples": []}
    figures, stretches = report["bits_per_byte"], {}
    for name, command in (("xz -9", ["xz", "-9c"]), ("zstd -19", ["zstd", "-19", "-c"])):
        figures[name] = {t: compressed(text, command) / len(text) for t, text in texts.items()}
    for location in models:
        name, model = pathlib.Path(location).name, load(location, dtype="float32")
        stretches[name] = {t: bits_of_stretches(model, x) for t, x in texts.items()}
        found = {t: intervals.of_ratio(*each) for t, each in stretches[name].items()}
        figures[name] = {t: each["value"] for t, each in found.items()}
        report["intervals"][name] = {t: each["interval"] for t, each in found.items()}
        if isinstance(model.module, BLT):
            bits = latent_costs.of_batches(
                model, list(texts.values()), length=CONTEXT, each=ABLATED, batch=ABLATED
            )
            costs = latent_costs.figures(bits)
            report["latents"][name] = {n: x["value"] for n, x in costs.items() if n != "own"}
        print(name, figures[name], report["latents"].get(name, ""), flush=True)
        samples = generate(model, PROMPTS, max_new_bytes=new, temperature=0.6, top_p=0.95)
        report["samples"] += [
            {"model": name, "prompt": prompt, "continuation": text}
            for prompt, text in zip(PROMPTS, samples.text, strict=True)
        ]
    if options.continued:
        plain = load(options.continued, dtype="float32")
        plain = {t: bits_of_stretches(plain, x) for t, x in texts.items()}
        report["continued"] = {t: bits.sum() / counts.sum() for t, (bits, counts) in plain.items()}
        report["more_than_continued"] = {
            name: more(stretches[name], plain) for name in ("tiny", "tiny-d") if name in stretches
        }
    path = options.results / "results.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    study.page(path).write_text(markdown(report))


def markdown(report):
    texts = list(report["bytes"])
    lines = ["# Held-out text, bits per byte", "", "| | " + " | ".join(texts) + " |"]
    lines += ["|---" * (len(texts) + 1) + "|"]
    for name, figures in report["bits_per_byte"].items():
        shown = {text: f"{figures[text]:.2f}" for text in texts}
        for text, interval in report["intervals"].get(name, {}).items():
            shown[text] = intervals.shown({"value": figures[text], "interval": interval})
        lines.append(f"| {name} | " + " | ".join(shown.values()) + " |")
    sizes = ", ".join(f"{name} {size:,}" for name, size in report["bytes"].items())
    lines += ["", f"In brackets: 95 % intervals from resampling stretches of {STRIDE} bytes."]
    lines += ["", f"Bytes of the {report['split']} files: {sizes}."]
    lines += ["", *joint_loss(report), "# What latents are worth", ""]
    lines += [f"Bits per byte more, over {ABLATED} windows of {CONTEXT} bytes of each text.", ""]
    lines += ["| latents | " + " | ".join(report["latents"]) + " |"]
    lines += ["|---" * (len(report["latents"]) + 1) + "|"]
    for kind in next(iter(report["latents"].values()), ()):
        costs = (f"{cost[kind]:+.3f}" for cost in report["latents"].values())
        lines.append(f"| {kind.replace('_', ' by ')} | " + " | ".join(costs) + " |")
    lines += ["", "# Samples", "", "Temperature 0.6, top_p 0.95, 200 bytes.", ""]
    for sample in report["samples"]:
        lines += [
            f"{sample['model']}:",
            "",
            "```",
            sample["prompt"] + "⏵" + sample["continuation"],
            "```",
            "",
        ]
    return "\n".join(lines)


def joint_loss(report):
    """What a longer plain training and the joint loss are worth, a text a row."""
    if "continued" not in report:
        return []
    texts = list(report["bytes"])
    header = ("bits per byte", *texts)
    rows = [
        ("that `tiny`, trained on plainly", *(f"{report['continued'][t]:.3f}" for t in texts)),
        *(
            (f"{name} more", *(intervals.shown(found[t], "+.3f") for t in texts))
            for name, found in report["more_than_continued"].items()
        ),
    ]
    return [
        "# What the joint loss costs",
        "",
        "`tiny-d` beside the `tiny` that it began with, trained on by the next byte alone, on the "
        "same bytes, by the same schedule; the bundled `tiny` is a later one. In brackets 95 % "
        f"intervals from resampling stretches of {STRIDE} bytes.",
        "",
        *study.table(header, rows),
        "",
    ]


if __name__ == "__main__":
    main()
