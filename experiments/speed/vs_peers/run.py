"""Times bytelax beside transformers, on the same weights.

    pip install -e .[parity]
    python -m experiments.speed.vs_peers.run --data DIR

Two contests, greedy, in float32, one prompt at a time; bytes are compared before any time is
believed.

- A random BLT of 35M parameters (hash table not counted), saved in the Hugging Face layout and run
  from there by both, at contexts of 128 to 2048 bytes. transformers runs with `use_cache=False`:
  5.23.0 has no cache that gives right bytes. The weights are scaled so that the text does not run
  into a loop, and the prompts are the model's own text. For the shortest and the longest context a
  trace says where bytelax's time goes.
- The bundled `tiny-lm` as a Llama, with caches, plain and with `tiny-draft` as its assistant,
  beside bytelax, plain and with the method `draft-model`. Texts are shorter than the attention
  window, so that a Llama is the same model.
"""

import functools
import importlib.metadata
import os
import pathlib
import statistics
import tempfile
import time

import bytelax
from bytelax import checkpoints
from bytelax.measure.timing import Ratio
from experiments.harness import floor, random_blt, side_by_side, study, thunks

MINUTES = 6
CONTEXTS = (128, 512, 1024, 2048)
DRAFT_LENGTH = 4


class Blt:
    """One random BLT on both sides."""

    def __init__(self, scratch, *, smoke, contexts, new):
        from experiments.harness import peers

        model = random_blt.model(random_blt.SHAPES["smallest" if smoke else "35M"], 0)
        model, self.text = random_blt.own_text(
            model, contexts[-1] + new, bytes_per_patch=4.25, seed=0, rewrites=0 if smoke else 2
        )
        checkpoints.check_transformers(model.config)
        checkpoints.write(scratch / "model", model.config, model.params, layout="huggingface")
        self.model = bytelax.load(scratch / "model")
        self.theirs = peers.released_blt(scratch / "model")
        self.machine = floor.measured(megabytes=8 if smoke else 512)
        self.scratch, self.new = scratch, new

    def measure(self, context, repeats):
        """One context: bytes first, then times in turn."""
        from experiments.harness import peers

        prompt = self.text[:context]
        count = min(self.new, 32, max(8, 16_384 // context))  # a byte takes them up to a second
        ours = greedy(self.model, prompt, self.new)  # compiles
        expected, _ = peers.generate(self.theirs, prompt, count, use_cache=False)  # warms up
        stream_seconds(self.model, prompt, self.new)
        slow, fast = [], []
        for _ in range(repeats):
            slow.append(peers.generate(self.theirs, prompt, count, use_cache=False)[1] / count)
            fast.append(stream_seconds(self.model, prompt, self.new))
        patch = ours.stats.bytes / ours.stats.patches
        return {
            "bytes_agree": ours.bytes[0][:count] == expected,
            "bytes_compared": count,
            "bytes_per_patch": patch,
            "transformers_ms": 1e3 * statistics.median(slow),
            "bytelax_ms": 1e3 * statistics.median(fast),
            "floor_ms": 1e3 * self.floor(context, patch),
            "ratio": Ratio.of(slow, fast)._asdict(),
        }

    def floor(self, context, patch):
        """Seconds a byte that reading weights and caches takes."""
        weights = floor.weights(self.model)
        caches = floor.caches(self.model, context, bytes_per_patch=patch)
        passes = {"decoder": 1, "encoder": 1, "patcher": 1, "global_": 1 / patch}
        return sum(
            passes[name] * 4 * (getattr(weights, name) + getattr(caches, name))
            for name in passes
        ) / self.machine.bytes_per_second  # fmt: skip

    def profile(self, context):
        decode = functools.partial(greedy, self.model, self.text[:context], self.new)
        decode()
        return thunks.profile(decode, self.new, self.scratch)


class Assisted:
    """The bundled byte transformer on both sides, with a draft model."""

    def __init__(self, data, *, prompts, new):
        from experiments.harness import peers

        self.ours = bytelax.load("tiny-lm", dtype="float32")
        self.small = bytelax.load("tiny-draft", dtype="float32")
        self.theirs, self.assistant = peers.llama(self.ours), peers.llama(self.small)
        window = min(self.ours.config.trunk.window, self.small.config.trunk.window)
        self.new = new
        self.texts = side_by_side.prompts(data, prompts, window - new - DRAFT_LENGTH - 2)

    def measure(self, repeats):
        from experiments.harness import peers

        contestants = {
            "transformers": functools.partial(peers.generate, self.theirs),
            "transformers, assisted": functools.partial(
                peers.generate, self.theirs, assistant=self.assistant, draft_length=DRAFT_LENGTH
            ),
            "bytelax": functools.partial(self.decode, "ar", {}),
            "bytelax, draft-model": functools.partial(
                self.decode,
                "draft-model",
                {"draft_model": self.small, "draft_length": DRAFT_LENGTH},
            ),
        }
        seconds = {name: [] for name in contestants}
        texts = {}
        for repeat in range(repeats + 1):  # the first compiles and warms up
            for name, decode in contestants.items():
                out = [decode(prompt, self.new) for prompt in self.texts]
                texts[name] = [text for text, _ in out]
                if repeat:
                    seconds[name].append(sum(spent for _, spent in out))
        total = self.new * len(self.texts)
        return {
            "prompt_bytes": len(self.texts[0]),
            "rows": {
                name: {
                    "ms_per_byte": 1e3 * statistics.median(spent) / total,
                    "over_own_plain": Ratio.of(seconds[name.split(",")[0]], spent)._asdict(),
                    "over_transformers": Ratio.of(seconds["transformers"], spent)._asdict(),
                    "same_outputs": sum(
                        a == b for a, b in zip(texts[name], texts["bytelax"], strict=True)
                    ),
                }
                for name, spent in seconds.items()
            },
        }

    def decode(self, method, settings, prompt, count):
        begin = time.perf_counter()
        out = bytelax.generate(
            self.ours, [prompt], method=method, max_new_bytes=count, allow_eos=False, **settings
        )
        return out.bytes[0], time.perf_counter() - begin  # the whole call, as for transformers


def greedy(model, prompt, count):
    return bytelax.generate(model, [prompt], max_new_bytes=count, allow_eos=False)


def stream_seconds(model, prompt, count):
    """Seconds a byte once the first eight bytes stand."""
    every = 8
    times = [
        time.perf_counter()
        for _ in bytelax.stream(model, prompt, every=every, max_new_bytes=count, allow_eos=False)
    ]
    return (times[-1] - times[0]) / (count - every)


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--new", type=int, default=256, help="bytes of a run of bytelax's BLT")
    options.add_argument("--prompts", type=int, default=4, help="of the byte transformer")
    options.add_argument("--repeats", type=int, default=5)
    options = options.parse_args()
    # Threads of torch that wait for one another sleep: spinning, they lose severalfold where
    # another process runs too. On an idle machine it makes little difference.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise SystemExit(f"{error.name} is not installed: pip install -e .[parity]") from None
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(threads)
    contexts, new = ((24, 48), 24) if options.smoke else (CONTEXTS, options.new)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        thunks.dump_to(scratch)
        blt = functools.cache(lambda: Blt(scratch, smoke=options.smoke, contexts=contexts, new=new))

        def measure(setting):
            if setting["contest"] == "blt":
                return blt().measure(setting["context"], options.repeats)
            if setting["contest"] == "trace":
                return blt().profile(setting["context"])
            assisted = Assisted(
                options.data, prompts=options.prompts, new=24 if options.smoke else 64
            )
            return assisted.measure(options.repeats)

        report = study.run(
            options.results / "results.json",
            {
                "threads": threads, "repeats": options.repeats, "new": new,
                "prompts": options.prompts, "draft_length": DRAFT_LENGTH,
                **{name: importlib.metadata.version(name) for name in ("torch", "transformers")},
            },
            [
                *({"contest": "blt", "context": context} for context in contexts),
                *({"contest": "trace", "context": c} for c in (contexts[0], contexts[-1])),
                {"contest": "assisted"},
            ],
            measure,
            markdown=markdown,
        )  # fmt: skip
    if not all(row.get("bytes_agree", True) for row in report["rows"]):
        raise SystemExit("the bytes differ: the times compare nothing")


def markdown(report):
    rows = {
        contest: [row for row in report["rows"] if row["setting"]["contest"] == contest]
        for contest in ("blt", "trace", "assisted")
    }
    lines = [
        "# bytelax beside transformers",
        "",
        f"The same weights, greedy, one prompt, {study.machine(report)}, {report['threads']} "
        f"threads used, torch {report['torch']}, transformers {report['transformers']}. Medians "
        f"of {report['repeats']} runs in turn; in brackets the least and the greatest ratio of a "
        "pair. Compiling is not counted.",
        "",
        "## A Byte Latent Transformer as released",
        "",
        "35M parameters with random weights, plain decoding; transformers with "
        "`use_cache=False`. Floor: reading the weights and caches once at the bandwidth that was "
        "measured.",
        "",
        *study.table(
            ("context", "transformers, ms/byte", "bytelax, ms/byte", "ratio", "same bytes",
             "bytes per patch", "floor, ms/byte", "bytelax over it"),
            [
                (
                    row["setting"]["context"],
                    f"{row['transformers_ms']:.0f}",
                    f"{row['bytelax_ms']:.2f}",
                    _ratio(row["ratio"], ".0f"),
                    row["bytes_compared"] if row["bytes_agree"] else "NO",
                    f"{row['bytes_per_patch']:.2f}",
                    f"{row['floor_ms']:.2f}",
                    f"{row['bytelax_ms'] / row['floor_ms']:.2f}",
                )
                for row in rows["blt"]
            ],
        ),
    ]  # fmt: skip
    if rows["trace"]:
        lines += [
            "",
            "Where bytelax's time goes, milliseconds per byte (thunks per byte) by XLA's trace, "
            "which slows the small thunks down:",
            "",
            *study.table(
                ("context", *thunks.PARTS, thunks.GAP),
                [
                    (
                        row["setting"]["context"],
                        *(f"{row['ms'][part]:.2f} ({row['thunks'][part]:.0f})"
                          for part in thunks.PARTS),
                        f"{row['ms'][thunks.GAP]:.2f}",
                    )
                    for row in rows["trace"]
                ],
            ),
        ]  # fmt: skip
    for row in rows["assisted"]:
        lines += [
            "",
            "## A draft model",
            "",
            f"`tiny-lm`, in transformers as a Llama, with caches; `tiny-draft` drafts "
            f"{report['draft_length']} bytes per round. {report['prompts']} held-out prompts of "
            f"{row['prompt_bytes']} bytes, taking them in counted.",
            "",
            *study.table(
                ("decoded by", "ms/byte", "beside its own plain decoding", "beside transformers",
                 "same output"),
                [
                    (
                        name,
                        f"{one['ms_per_byte']:.2f}",
                        _ratio(one["over_own_plain"], ".2f"),
                        _ratio(one["over_transformers"], ".2f"),
                        f"{one['same_outputs']}/{report['prompts']}",
                    )
                    for name, one in row["rows"].items()
                ],
            ),
        ]  # fmt: skip
    return "\n".join([*lines, ""])


def _ratio(ratio, form):
    median, low, high = (format(ratio[name], form) for name in ("median", "lowest", "highest"))
    return f"{median} ({low} to {high})"


if __name__ == "__main__":
    main()
