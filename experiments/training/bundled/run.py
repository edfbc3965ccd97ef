"""What the bundled models know: bits per byte on held-out text beside compressors, what the latents
of the BLTs are worth, and samples.

    python -m experiments.training.bundled.run --data DIR

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
from bytelax.measure.latents import bits_by_latents
from bytelax.models.blt import BLT
from experiments.harness import study
from experiments.harness.bundled_data import held_out

CONTEXT, STRIDE = 1024, 512
ABLATED = 16  # windows of each text, of CONTEXT bytes
PATCHES = 640  # room for those of a context
PROMPTS = [
    "The cell membrane is a thin layer that",
    "def read_lines(path):\n    ",
    "de: Ich habe heute keine Zeit.\nen:",
]


def bits_per_byte(model, text):
    """Every byte is scored once, behind at least CONTEXT - STRIDE bytes where there are so many."""
    ids = np.array(vocab.encode(text), np.int32)
    starts = range(0, max(len(ids) - CONTEXT + STRIDE, 1), STRIDE)
    nats, count = 0.0, 0
    score = _scorer(model)
    for start in starts:
        window = ids[start : start + CONTEXT + 1]
        padded = np.zeros(CONTEXT + 1, np.int32)
        padded[: len(window)] = window
        begin = 0 if start == 0 else CONTEXT - STRIDE
        scored, patches = score(model.params, padded[None])
        assert int(patches[0, : len(window)].sum()) <= PATCHES
        each = np.asarray(scored)[0, begin : len(window) - 1]
        nats, count = nats + each.sum(dtype=np.float64), count + len(each)
    assert count == len(text)
    return nats / count / math.log(2)


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


def cost_of_latents(model, texts):
    """Bits per byte more under each ablation, over all texts in equal parts."""
    windows = []
    for text in texts.values():
        for begin in np.linspace(0, len(text) - CONTEXT, ABLATED).astype(int):
            windows.append(vocab.encode(text[begin : begin + CONTEXT - 1]))
    run = jax.jit(lambda params, ids: bits_by_latents(model.module, params, ids))
    totals = {}
    for begin in range(0, len(windows), ABLATED):
        sums = jax.device_get(run(model.params, jnp.asarray(windows[begin : begin + ABLATED])))
        for name, (bits, count) in sums.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = (before[0] + float(bits), before[1] + float(count))
    own = totals.pop("own")[0]
    return {name: (bits - own) / count for name, (bits, count) in totals.items()}


def compressed(text, command):
    return 8 * len(subprocess.run(command, input=text, capture_output=True, check=True).stdout)


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--models", nargs="*", default=["tiny", "tiny-d", "tiny-lm", "tiny-draft"])
    options.add_argument("--bytes", type=int, default=100_000, help="of each text, at most")
    options = options.parse_args()
    models, most, new = options.models, options.bytes, 200
    if options.smoke:
        models, most, new = ["tiny", "tiny-draft"], CONTEXT + 1, 2
    texts = held_out(options.data, most)
    report = {"bytes": {name: len(text) for name, text in texts.items()}, "bits_per_byte": {}}
    report["latents"], report["samples"] = {}, []
    figures = report["bits_per_byte"]
    for name, command in (("xz -9", ["xz", "-9c"]), ("zstd -19", ["zstd", "-19", "-c"])):
        figures[name] = {t: compressed(text, command) / len(text) for t, text in texts.items()}
    for location in models:
        name, model = pathlib.Path(location).name, load(location, dtype="float32")
        figures[name] = {t: bits_per_byte(model, x) for t, x in texts.items()}
        if isinstance(model.module, BLT):
            report["latents"][name] = cost_of_latents(model, texts)
        print(name, figures[name], report["latents"].get(name, ""), flush=True)
        samples = generate(model, PROMPTS, max_new_bytes=new, temperature=0.6, top_p=0.95)
        report["samples"] += [
            {"model": name, "prompt": prompt, "continuation": text}
            for prompt, text in zip(PROMPTS, samples.text, strict=True)
        ]
    path = options.results / "results.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    study.page(path).write_text(markdown(report))


def markdown(report):
    texts = list(report["bytes"])
    lines = ["# Held-out text, bits per byte", "", "| | " + " | ".join(texts) + " |"]
    lines += ["|---" * (len(texts) + 1) + "|"]
    for name, figures in report["bits_per_byte"].items():
        lines.append(f"| {name} | " + " | ".join(f"{figures[t]:.2f}" for t in texts) + " |")
    sizes = ", ".join(f"{name} {size:,}" for name, size in report["bytes"].items())
    lines += ["", f"Bytes: {sizes}.", "", "# What latents are worth", ""]
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


if __name__ == "__main__":
    main()
