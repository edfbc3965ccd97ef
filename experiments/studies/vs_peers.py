"""bytelax and transformers: the same weights, greedy, float32, one prompt at a time.

"blt": a random BLT of 35M parameters (hash table not counted), from one checkpoint. transformers
runs with `use_cache=False`: in 5.24.0 a cache of its own ends with an error, and with a given
`EncoderDecoderCache` it writes other bytes. It writes 32 bytes, fewer after long prompts, which are
compared; the prompts are the model's own text. `tiny-lm` and `small-lm` are Llamas in transformers,
with caches, plain and with `tiny-draft` and `small-draft` as assistants, and write 64 bytes; a time
is that of the whole call. Bytes are compared before any time counts. "Floor": reading the weights
and caches once at the bandwidth that was measured.

    pip install -e .[parity]
    python -m experiments.studies.vs_peers --data DIR
"""

import functools
import math
import os
import pathlib
import statistics
import tempfile
import time

import psutil

import bytelax
from bytelax import checkpoints
from bytelax.measure.timing import PLAIN, Ratio
from experiments import evidence, study
from experiments.harness import bundled_data, floor, random_blt, roofline
from experiments.study import Column

CONTEXTS = (128, 512, 1024, 2048)
DRAFT_LENGTH = 4
ASSISTANTS = {"tiny-lm": "tiny-draft", "small-lm": "small-draft"}
COLUMNS = [
    Column("model", "model"),
    Column("prompt, bytes", "context"),
    Column("decoded by", "decoded_by"),
    Column("ms per byte", "ms", ".2f"),
    Column("transformers, ms per byte", "transformers_ms", ".1f"),
    Column("speed over transformers", "ratio", ".2f"),
    Column("over its own plain decoding", "over_plain", ".2f"),
    Column("floor, ms per byte", "floor_ms", ".2f"),
    Column("same bytes", "same_bytes"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--new", type=int, default=256, help="bytes of a run of bytelax's BLT")
    options.add_argument("--models", nargs="+", default=["blt", *ASSISTANTS])
    options.add_argument("--prompts", type=int, default=5, help="of a byte transformer")
    options.add_argument("--repeats", type=int, default=5)
    options = options.parse_args()
    # Threads of torch that wait for one another sleep: spinning, they lose severalfold where
    # another process runs too.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
        import transformers
    except ImportError as error:
        raise SystemExit(f"{error.name} is not installed: pip install -e .[parity]") from None
    threads = len(psutil.Process().cpu_affinity())
    torch.set_num_threads(threads)
    contexts = CONTEXTS
    if options.smoke:
        contexts, options.new, options.prompts, options.repeats = (24, 48), 24, 1, 1
    with tempfile.TemporaryDirectory() as scratch:
        blt = functools.cache(lambda: Blt(pathlib.Path(scratch), options, contexts[-1]))

        def measure(setting):
            if setting["model"] == "blt":
                return blt().measure(setting["context"], options.repeats)
            return assisted(setting["model"], options)

        settings = [
            setting
            for name in options.models
            for setting in (
                [{"model": name, "context": context} for context in contexts]
                if name == "blt"
                else [{"model": name}]
            )
        ]
        study.run(
            "vs_peers", options, settings, measure,
            conditions={
                "torch": torch.__version__, "transformers": transformers.__version__,
                **{name: getattr(options, name) for name in ("new", "prompts", "repeats")},
            },
        )  # fmt: skip


class Blt:
    """One random BLT on both sides."""

    def __init__(self, scratch: pathlib.Path, options, longest: int):
        from experiments.harness import peers

        model = random_blt.model(random_blt.SHAPES["smallest" if options.smoke else "35M"], 0)
        model, self.text = random_blt.own_text(
            model, longest + options.new, bytes_per_patch=4.25, seed=0,
            rewrites=0 if options.smoke else 2,
        )  # fmt: skip
        checkpoints.check_transformers(model.config)
        checkpoints.write(scratch / "model", model.config, model.params, layout="huggingface")
        self.model = bytelax.load(scratch / "model")
        self.theirs = peers.released_blt(scratch / "model")
        machine = floor.measured(megabytes=8 if options.smoke else 512)
        self.machine = machine._replace(flops_per_second=math.inf)
        self.new = options.new

    def measure(self, context: int, repeats: int) -> dict:
        from experiments.harness import peers

        prompt = self.text[:context]
        count = min(self.new, 32, max(8, 16_384 // context))  # a byte takes them up to a second
        ours = bytelax.generate(self.model, [prompt], max_new_bytes=self.new, allow_eos=False)
        expected, _ = peers.generate(self.theirs, prompt, count, use_cache=False)  # warms up
        stream_seconds(self.model, prompt, self.new)
        least = roofline.seconds(
            self.model, PLAIN, ours.stats, self.machine, rows=1, context=context
        )
        slow, fast = [], []
        for _ in range(repeats):
            slow.append(peers.generate(self.theirs, prompt, count, use_cache=False)[1] / count)
            fast.append(stream_seconds(self.model, prompt, self.new))
        return {
            "decoded_by": "bytelax",
            "same_bytes": ours.bytes[0][:count] == expected,
            "transformers_ms": 1e3 * statistics.median(slow),
            "ms": 1e3 * statistics.median(fast),
            "floor_ms": 1e3 * least / ours.stats.bytes,
            "ratio": study.spread(*Ratio.of(slow, fast)),
        }


def assisted(name: str, options) -> list[dict]:
    """A bundled byte transformer on both sides, plain and with a draft model."""
    from experiments.harness import peers

    ours, small = (evidence.loaded(one, dtype="float32") for one in (name, ASSISTANTS[name]))
    theirs, assistant = peers.llama(ours), peers.llama(small)
    new = 24 if options.smoke else 64
    # Texts are shorter than the attention window, so that a Llama is the same model.
    window = min(ours.config.trunk.window, small.config.trunk.window)
    texts = bundled_data.prompts(options.data, options.prompts, window - new - DRAFT_LENGTH - 2)

    def decode(method, settings, prompt, count):
        begin = time.perf_counter()
        out = bytelax.generate(
            ours, [prompt], method=method, max_new_bytes=count, allow_eos=False, **settings
        )
        return out.bytes[0], time.perf_counter() - begin  # the whole call, as for transformers

    drafting = {"draft_model": small, "draft_length": DRAFT_LENGTH}
    contestants = {
        "transformers": functools.partial(peers.generate, theirs),
        "transformers, assisted": functools.partial(
            peers.generate, theirs, assistant=assistant, draft_length=DRAFT_LENGTH
        ),
        "bytelax": functools.partial(decode, "ar", {}),
        "bytelax, draft-model": functools.partial(decode, "draft-model", drafting),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    written = {}
    for repeat in range(options.repeats + 1):  # the first compiles and warms up
        for name, run in contestants.items():
            out = [run(prompt, new) for _, prompt in texts]
            written[name] = [text for text, _ in out]
            if repeat:
                seconds[name].append(sum(spent for _, spent in out))

    def beside(other, own):
        return study.spread(*Ratio.of(seconds[other], seconds[own]))

    return [
        {
            "decoded_by": name,
            "ms": 1e3 * statistics.median(spent) / (new * len(texts)),
            "over_plain": beside(name.split(",")[0], name) if "," in name else None,
            "ratio": beside("transformers", name),
            "same_bytes": written[name] == written["bytelax"],
        }
        for name, spent in seconds.items()
    ]


def stream_seconds(model, prompt: bytes, count: int) -> float:
    """Seconds for each byte, once the first eight bytes are written."""
    every = 8
    times = [
        time.perf_counter()
        for _ in bytelax.stream(model, prompt, every=every, max_new_bytes=count, allow_eos=False)
    ]
    return (times[-1] - times[0]) / (count - every)


if __name__ == "__main__":
    main()
