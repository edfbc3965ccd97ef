"""bytelax and llama.cpp: the same weights and ids, one row, in turns on the same threads.

`small-lm`, plain and with drafts (`small-draft` here, the package's prompt lookup there), and a
random byte transformer of the published shape (85M). Times are without the prompt, plain and of
passes after one prompt, drafted after five; a pass is over so many ids, of which one is kept.
`--dtypes int8` has one scale for each output here and Q8_0 there; on a Xeon with AMX llama.cpp
ended with an illegal instruction.

    CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python gguf
    python -m experiments.studies.vs_llama_cpp --data DIR
"""

import functools
import pathlib
import statistics
import tempfile

import psutil

import bytelax
from bytelax import checkpoints
from bytelax.measure.timing import Ratio
from bytelax.model import Model
from experiments import evidence, study
from experiments.harness import bundled_data
from experiments.studies.windows import published_shape
from experiments.study import Column

WIDTHS = (1, 5, 9)
CONTEXTS = (128, 384)  # below the attention window of `small-lm`, which a GGUF Llama lacks
DRAFT_LENGTH = 4
COLUMNS = [
    Column("model", "model"),
    Column("weights", "dtype"),
    Column("prompt, bytes", "context"),
    Column("what", "what"),
    Column("bytelax, ms", "ms", ".2f"),
    Column("llama.cpp, ms", "theirs_ms", ".2f"),
    Column("speed over llama.cpp", "ratio", ".2f"),
    Column("same bytes", "same_bytes"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--new", type=int, default=64, help="bytes of a run")
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--models", nargs="+", default=["small-lm", "85M"])
    options.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    options = options.parse_args()
    contexts = CONTEXTS
    if options.smoke:
        contexts, options.new, options.repeats, options.models = (24,), 8, 1, ["tiny-draft"]
    try:
        import llama_cpp
    except ImportError as error:
        raise SystemExit(
            f"{error.name} is not installed: pip install llama-cpp-python gguf"
        ) from None
    settings = [
        {"model": model, "dtype": dtype, "context": context}
        for model in options.models
        for dtype in options.dtypes
        for context in contexts
    ]
    with tempfile.TemporaryDirectory() as scratch:
        both = functools.cache(functools.partial(contestants, pathlib.Path(scratch)))
        study.run(
            "vs_llama_cpp", options, settings,
            lambda setting: measure(*both(setting["model"], setting["dtype"]), setting, options),
            conditions={
                "llama_cpp_python": llama_cpp.__version__, "threads": threads(),
                **{name: getattr(options, name) for name in ("new", "repeats")},
            },
        )  # fmt: skip


def threads() -> int:
    return len(psutil.Process().cpu_affinity())


def contestants(scratch: pathlib.Path, name: str, dtype: str):
    """A model here and in llama.cpp."""
    from experiments.harness import llama_cpp

    place: str | pathlib.Path = name
    if name == "85M":
        random, place = published_shape(), scratch / name
        if not place.exists():
            checkpoints.write(place, random.config, random.params, layout="huggingface")
    how = {"quantize": "int8"} if dtype == "int8" else {"dtype": dtype}
    file = scratch / f"{name}-{dtype}.gguf"
    llama_cpp.write(bytelax.load(place, dtype="float32"), file, dtype)
    theirs = llama_cpp.Contestant(file, capacity=512, threads=threads())
    return bytelax.load(place, **how), theirs


def measure(ours: Model, theirs, setting: dict, options) -> list[dict]:
    """A row for each width of a pass, and one for drafting where a model drafts."""
    texts = bundled_data.prompts(options.data, 5, setting["context"], bundled_data.TEST)
    prompts = [text for _, text in texts]
    rows = [passes(ours, theirs, prompts[0], width, options) for width in WIDTHS]
    if setting["model"] != "85M":
        rows.append(drafted(ours, theirs, prompts, setting["dtype"], options))
    return rows


def decode(model: Model, prompt: bytes, new: int, method: str = "ar", **settings):
    """The greedy continuation, the seconds after the prompt, and the rounds."""
    out = bytelax.generate(
        model, [prompt], method=method, max_new_bytes=new, allow_eos=False, **settings
    )
    stats = out.stats
    assert stats.seconds is not None and stats.prefill_seconds is not None
    return out.bytes[0], stats.seconds - stats.prefill_seconds, stats.rounds


def passes(ours: Model, theirs, prompt: bytes, width: int, options) -> dict:
    """Passes over `width` ids; at a width of 1, plain decoding of the same bytes."""

    def own():
        text, seconds, rounds = decode(ours, prompt, options.new, window=width)
        return text, seconds / rounds

    def other():
        if width == 1:
            text, seconds = theirs.greedy(prompt, options.new)
            return text, seconds / options.new
        return None, theirs.window_seconds(prompt, width, options.new)

    return in_turns(own, other, options.repeats) | {
        "what": "plain byte" if width == 1 else f"pass of {width}"
    }


def drafted(ours: Model, theirs, prompts: list[bytes], dtype: str, options) -> dict:
    """Drafts here and there, for each byte of all prompts."""
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

    small = evidence.loaded("small-draft", dtype="float32" if dtype == "float32" else "bfloat16")
    lookup = LlamaPromptLookupDecoding(num_pred_tokens=DRAFT_LENGTH)
    settings = {"method": "draft-model", "draft_model": small, "draft_length": DRAFT_LENGTH}

    def own():
        runs = [decode(ours, prompt, options.new, **settings) for prompt in prompts]
        return b"".join(x[0] for x in runs), sum(x[1] for x in runs) / (options.new * len(prompts))

    def other():
        runs = [theirs.greedy(prompt, options.new, draft=lookup) for prompt in prompts]
        return b"".join(x[0] for x in runs), sum(x[1] for x in runs) / (options.new * len(prompts))

    return in_turns(own, other, options.repeats) | {"what": "drafted byte"}


def in_turns(own, other, repeats: int) -> dict:
    """The figures of two contestants, each of which returns its bytes and its seconds."""
    (mine, _), (yours, _) = own(), other()  # compiles and warms up
    pairs = [(own()[1], other()[1]) for _ in range(repeats)]
    seconds, theirs = zip(*pairs, strict=True)
    return {
        "ms": 1e3 * statistics.median(seconds),
        "theirs_ms": 1e3 * statistics.median(theirs),
        "ratio": study.spread(*Ratio.of(theirs, seconds)),
        "same_bytes": None if yours is None else mine == yours,
    }


if __name__ == "__main__":
    main()
