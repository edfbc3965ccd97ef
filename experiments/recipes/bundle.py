"""Puts trained models into the package: bfloat16 safetensors (the patcher float32) and a card.

    python -m experiments.recipes.bundle --runs runs tiny tiny-lm tiny-draft

With `--drafters RUN RUN`, runs of the stages `bundled` and `latents` of
`experiments.recipes.drafters`, `tiny` gets the heads that were trained for it.
"""

import argparse
import dataclasses
import json
import pathlib
import shutil
import tomllib

import jax
import jax.numpy as jnp

from bytelax import checkpoints
from bytelax.options import HeadsConfig
from experiments import study

ASSETS = study.ROOT / "bytelax" / "assets"
WHAT = {
    "tiny": "A Byte Latent Transformer whose decoder embeds its own bytes, with its entropy model.",
    "tiny-d": "BLT-D: `tiny`, trained on to fill in blocks of up to 16 masked bytes.",
    "tiny-lm": "A plain byte transformer of 12 layers, with heads to draft for itself.",
    "tiny-draft": "A small byte transformer that drafts for the others, distilled from `tiny-lm`.",
}
TARGET = "tiny"  # of the drafters
COMPRESSORS = ("xz -9", "zstd -19")
KINDS = {
    "mean": "one mean latent",
    "other": "another text's",
    "stale_1": "stale by a patch",
    "stale_4": "stale by four",
}
# The stages of each recipe, in order; the last one's model is bundled.
STAGES = {
    "tiny": ("tiny",),
    "tiny-d": ("tiny", "tiny-d"),
    "tiny-lm": ("tiny-lm", "tiny-lm-heads"),
    "tiny-draft": ("tiny-draft",),
}
CARD = """# {name}

{what}
{parameters:,} parameters. It is small and was trained on two processor cores, for demonstrations
and tests: it writes English prose, Python, and short German, French and English sentences, and
knows nothing reliably.

| | |
|---|---|
| trained by | {recipe} |
| bytes seen | {seen:,}, in {hours:.1f} hours |
| stored as | bfloat16, the entropy model float32; `bytelax.load("{name}")` computes in float32 |
| licence of the weights | Apache-2.0, as far as the attributions below allow |

## Held-out bits per byte

{figures}
Conditions: [results](../../../docs/results.md#bundled).

## Training text and attribution

- Textbooks by OpenStax, Rice University, licensed under
  [CC BY 4.0](https://creativecommons.org/licenses/by/4.0/); markup, figures, tables, maths and
  exercises were removed. Access for free at <https://openstax.org>. The books: Introduction to
  Anthropology; Introduction to Business 2e; Principles of Economics 3e, of Macroeconomics 3e and of
  Microeconomics 3e (and the latter two for AP Courses 2e); Introduction to Sociology 3e;
  Psychology 2e; U.S. History; World History, volumes 1 and 2; American Government 3e; Introduction
  to Political Science; Introduction to Philosophy; Astronomy 2e; Anatomy and Physiology 2e.
- English novels of 1840 to 1920 from the ELTeC collection, public domain.
- Python source: the standard library of CPython (PSF-2.0, Python Software Foundation), NetworkX
  (BSD-3-Clause, NetworkX developers), TheAlgorithms/Python (MIT, The Algorithms and contributors).
- Sentence pairs by the contributors of the [Tatoeba Project](https://tatoeba.org), through
  [manythings.org/anki](https://www.manythings.org/anki/), under
  [CC BY 2.0 FR](https://creativecommons.org/licenses/by/2.0/fr/); changed in Unicode form and
  spaces.
"""


def bundle(name, runs, drafters):
    stages = [runs / stage for stage in STAGES[name]]
    config, params = checkpoints.read(stages[-1] / "model", dtype="float32")
    for run in drafters if name == TARGET else ():
        known, default = config.heads or HeadsConfig(), HeadsConfig()
        of_run, heads = checkpoints.read_heads(run / "heads", config)
        params.setdefault("heads", {}).update(heads)
        trained = {k: v for k, v in vars(of_run.heads).items() if v != getattr(default, k)}
        config = dataclasses.replace(config, heads=dataclasses.replace(known, **trained))

    def stored(path, leaf):
        return leaf if path[0].key == "patcher" else leaf.astype(jnp.bfloat16)

    params = jax.tree_util.tree_map_with_path(stored, params)
    shutil.rmtree(ASSETS / name, ignore_errors=True)
    checkpoints.write(ASSETS / name, config, params, layout="huggingface")
    commands = (f"`python -m experiments.recipes.bundled {stage}`" for stage in STAGES[name])
    seen, seconds = zip(*map(_seen, stages), strict=True)
    card = CARD.format(
        name=name,
        what=WHAT[name],
        parameters=sum(leaf.size for leaf in jax.tree.leaves(params)),
        recipe=", then ".join(commands),
        seen=sum(seen),
        hours=sum(seconds) / 3600,
        figures=_figures(name),
    )
    (ASSETS / name / "README.md").write_text(card)


def _seen(run):
    """Bytes that a run was trained on, and the seconds that it took."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    trained = [line for line in lines if line["split"] == "train"]
    data = tomllib.loads((run / "config.toml").read_text())["data"]
    step, seen, seconds = 0, 0, 0.0
    for line in trained:
        more = (line["step"] - step) * data["window"] * data["batch"]
        step, seen, seconds = line["step"], seen + more, seconds + more / line["bytes_per_second"]
    return seen, seconds


def _figures(name):
    """A table of what the study of the bundled models measured of a model, if it did."""
    rows = {
        row["setting"]["model"]: row
        for report in study.reports("bundled")
        for row in report["rows"]
    }
    if name not in rows:
        return "Not measured yet.\n"
    shown = [rows[each] for each in (name, *COMPRESSORS)]
    lines = [
        "| | " + " | ".join(row["setting"]["model"] for row in shown) + " |",
        "|---" * (len(shown) + 1) + "|",
    ]
    for genre in rows[name]["bits"]:
        bits = (row["bits"][genre] for row in shown)
        values = (each["value"] if isinstance(each, dict) else each for each in bits)
        lines.append(f"| {genre} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    if costs := rows[name].get("latents"):
        said = ", ".join(f"{words} {costs[kind]:+.3f}" for kind, words in KINDS.items())
        lines += ["", f"In place of its own latents, bits per byte: {said}."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=list(WHAT))
    parser.add_argument(
        "--drafters", type=pathlib.Path, nargs="*", default=[], help=f"runs of heads for {TARGET}"
    )
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs"))
    options = parser.parse_args()
    ASSETS.mkdir(exist_ok=True)
    for name in options.names:
        bundle(name, options.runs, options.drafters)
    size = sum(file.stat().st_size for file in ASSETS.rglob("*") if file.is_file())
    print(f"{size / 1e6:.1f} MB in {ASSETS.name}")


if __name__ == "__main__":
    main()
