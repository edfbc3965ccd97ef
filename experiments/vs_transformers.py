"""Times one byte of the same Byte Latent Transformer in bytelax and in transformers.

A random model of 35M parameters (hash table not counted) is saved in the Hugging Face layout and
run from there by both, greedily, in float32, one prompt at a time, at contexts of 128 to 2048
bytes. transformers runs with `use_cache=False`: 5.23.0 has no cache that gives right bytes. The
bytes of both are compared before any time is believed.

The weights are scaled so that the text does not run into a loop, the prompts are the model's own
text, and the patching threshold is a quantile of that text's entropies, so that patches are as long
in the prompt as in what is generated.

Two more questions are answered: how long reading the weights and caches alone would take, and where
the time goes. The latter comes from XLA's trace of the very program that was timed: every thunk is
assigned to a network by the `op_name` of its HLO instruction. At each instant the time is split
evenly among the thunks in flight; instants without one are the executor's own.

    pip install -e .[parity]
    python experiments/vs_transformers.py
"""

import collections
import concurrent.futures
import dataclasses
import datetime
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator

import jax
import numpy as np
import tyro

import bytelax
from bytelax import checkpoints, vocab
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.hashing import HashConfig
from bytelax.models.layers import TransformerConfig
from bytelax.models.patching import PatchingConfig

_FLOAT = 4  # bytes
_PARTS = ("patcher", "encoder", "closing patches", "global", "decoder", "loop and sampling")
_GAP = "between thunks"
_CONTAINERS = ("while", "call", "conditional")


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run.

    Attributes:
      out: directory of the results.
      smoke: a tiny model and two short contexts, to see that everything runs. Its times mean
        nothing.
      contexts: bytes before the first generated one.
      repetitions: pairs of measurements a context.
      new_bytes: bytes a measurement of bytelax generates.
      bytes_per_patch: what the threshold aims at.
      threads: CPUs both may use.
      seed: of weights and text.
    """

    out: pathlib.Path = pathlib.Path(__file__).parent / "results"
    smoke: bool = False
    contexts: tuple[int, ...] = (128, 512, 1024, 2048)
    repetitions: int = 7
    new_bytes: int = 256
    bytes_per_patch: float = 4.25
    threads: int = 2
    seed: int = 0

    def settled(self) -> "Args":
        if not self.smoke:
            return self
        return dataclasses.replace(self, contexts=(24, 48), repetitions=1, new_bytes=24)

    def transformers_bytes(self, context: int) -> int:
        """Fewer where a byte takes a second."""
        return 4 if self.smoke else min(32, max(8, 16_384 // context))


def main(args: Args) -> int:
    args = args.settled()
    # Threads of torch that wait for one another sleep: spinning, they lose severalfold where
    # another process runs too. On an idle machine it makes little difference.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"{error.name} is not installed: pip install -e .[parity]", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    threads = _limit_threads(args.threads)
    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        # The HLO text names the network of each thunk. Read before XLA compiles anything.
        os.environ["XLA_FLAGS"] = " ".join([
            os.environ.get("XLA_FLAGS", ""), f"--xla_dump_to={scratch / 'hlo'}",
            "--xla_dump_hlo_as_text", "--xla_dump_hlo_module_re=.*advance.*",
        ])  # fmt: skip
        results = study(args, scratch) | {"conditions": conditions(threads, load)}
    stem = "vs_transformers_smoke" if args.smoke else "vs_transformers"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{stem}.json").write_text(json.dumps(results, indent=2) + "\n")
    table = markdown(results)
    (args.out / f"{stem}.md").write_text(table)
    print(table)
    if not all(row["bytes_agree"] for row in results["contexts"]):
        print("the bytes differ: the times compare nothing", file=sys.stderr)
        return 1
    return 0


def study(args: Args, scratch: pathlib.Path) -> dict:
    """Everything but the conditions, ready for JSON."""
    random_model = random_weights(tiny_config() if args.smoke else config_35m(), args.seed)
    random_model, text = own_text(random_model, args)
    checkpoints.check_transformers(random_model.config)
    checkpoints.write(
        scratch / "model", random_model.config, random_model.params, layout="huggingface"
    )
    model = bytelax.load(scratch / "model")
    theirs = Transformers(scratch / "model")
    bandwidth = memory_bandwidth(8 if args.smoke else 512)
    rows = []
    for context in args.contexts:
        row = compare(model, theirs, text, context, args)
        row["floor"] = floor(model, row, bandwidth)
        rows.append(row)
        print(_progress(row), flush=True)
    profiled = [args.contexts[0], args.contexts[-1]]
    return {
        "smoke": args.smoke,
        "model": describe(model),
        "text": {"bytes": len(text), "distinct_8_grams": distinct(text, 8)},
        "contexts": rows,
        "flatness": {
            name: rows[-1][name]["ms_per_byte"] / rows[0][name]["ms_per_byte"]
            for name in ("transformers", "bytelax")
        },
        "bandwidth_gb_per_second": bandwidth,
        "profile": [
            {"context": context, **profile(model, text[:context], args.new_bytes, scratch)}
            for context in profiled
        ],
    }


# The model and its text.


def config_35m() -> BLTConfig:
    return _config(encoder=(256, 1, 4), decoder=(256, 4, 4), global_=(512, 8, 8), patcher=(192, 4))


def tiny_config() -> BLTConfig:
    return _config(encoder=(32, 1, 2), decoder=(32, 1, 2), global_=(64, 1, 2), patcher=(24, 1))


def random_weights(config: BLTConfig, seed: int) -> bytelax.Model:
    """Weights that keep the variance of what passes through them: greedy text wanders on."""
    module = BLT(config)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.zeros((1, 8), np.int32))["params"]
    rng = np.random.default_rng(seed)

    def weight(path, x):
        names = [entry.key for entry in path]
        if names[-1] == "scale":
            return np.ones(x.shape, np.float32)
        if names[-1] == "embedding":
            deviation = 0.5
        else:
            inputs = x.shape[0] * x.shape[1] if names[-2] == "out" else x.shape[0]
            deviation = inputs**-0.5
        if names[:2] == ["patcher", "head"]:
            deviation *= 3  # entropies lie further apart, and further from the threshold
        return rng.normal(size=x.shape).astype(np.float32) * np.float32(deviation)

    params = jax.tree_util.tree_map_with_path(weight, shapes)
    return bytelax.Model(module, jax.tree.map(jax.numpy.asarray, params))


def own_text(model: bytelax.Model, args: Args) -> tuple[bytelax.Model, bytes]:
    """Text of the model's own, and the model with the threshold that suits it."""
    rng = np.random.default_rng(args.seed)
    size = args.contexts[-1] + args.new_bytes
    text = rng.integers(32, 127, size, np.uint8).tobytes()
    for _ in range(0 if args.smoke else 2):
        model = with_threshold(model, text, args.bytes_per_patch)
        begin = text[:16]
        (rest,) = greedy(model, begin, size - len(begin)).bytes
        text = begin + rest
    return with_threshold(model, text, args.bytes_per_patch), text


def with_threshold(model: bytelax.Model, text: bytes, bytes_per_patch: float) -> bytelax.Model:
    """Cuts `text` every `bytes_per_patch` bytes on average, in the widest gap near there."""
    entropies = np.sort(np.asarray(model.entropies(np.array([vocab.encode(text)])))[0])
    middle = round(len(entropies) * (1 - 1 / bytes_per_patch))
    near = entropies[max(middle - 5, 0) : middle + 5]
    widest = np.diff(near).argmax()
    patching = PatchingConfig(threshold=float((near[widest] + near[widest + 1]) / 2))
    config = dataclasses.replace(model.config, patching=patching)
    return bytelax.Model(BLT(config), model.params)


def _config(*, encoder, decoder, global_, patcher):
    patcher_dim, patcher_layers = patcher
    return BLTConfig(
        encoder=_stack(*encoder, window=512),
        decoder=_stack(*decoder, window=512),
        global_transformer=_stack(*global_),
        patcher=ByteLMConfig(
            trunk=_stack(patcher_dim, patcher_layers, 3, window=512, rope_theta=10_000.0)
        ),
        patching=PatchingConfig(),
        hashing=HashConfig(vocab=5003),
        patch_vectors=2,
    )


def _stack(dim, layers, heads, **more):
    ffn = 256 * -(-int(8 * dim / 3) // 256)
    return TransformerConfig(
        dim=dim, layers=layers, heads=heads, kv_heads=heads, head_dim=dim // heads, ffn_dim=ffn,
        **more,
    )  # fmt: skip


# The two contestants.


class Transformers:
    """Greedy decoding by transformers, without its caches."""

    def __init__(self, directory: pathlib.Path):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        self.torch = torch
        self.model = transformers.BltForCausalLM.from_pretrained(directory, dtype=torch.float32)
        self.model.eval()

    def generate(self, prompt: bytes, count: int) -> tuple[bytes, float]:
        """The continuation and the seconds it took."""
        ids = self.torch.tensor([vocab.encode(prompt)])
        mask = self.torch.ones_like(ids)
        begin = time.perf_counter()
        with self.torch.no_grad():
            out = self.model.generate(
                ids,
                attention_mask=mask,
                max_new_tokens=count,
                do_sample=False,
                use_cache=False,
                suppress_tokens=list(range(vocab.OFFSET)),
            )
        seconds = time.perf_counter() - begin
        return vocab.decode(out[0, ids.shape[1] :].tolist()), seconds


def greedy(model: bytelax.Model, prompt: bytes, count: int) -> bytelax.Output:
    return bytelax.generate(model, [prompt], max_new_bytes=count, allow_eos=False)


def stream_seconds(model: bytelax.Model, prompt: bytes, count: int) -> tuple[float, float]:
    """Seconds until the first eight bytes stand, and seconds a byte from there."""
    every = 8
    begin = time.perf_counter()
    times = [
        time.perf_counter()
        for _ in bytelax.stream(
            model, prompt, every=every, max_new_bytes=count, allow_eos=False
        )
    ]  # fmt: skip
    return times[0] - begin, (times[-1] - times[0]) / (count - every)


def compare(
    model: bytelax.Model, theirs: Transformers, text: bytes, context: int, args: Args
) -> dict:
    """One context: bytes first, then times in turn."""
    prompt, count = text[:context], args.transformers_bytes(context)
    ours = greedy(model, prompt, args.new_bytes)  # compiles
    expected, _ = theirs.generate(prompt, count)  # warms up
    stream_seconds(model, prompt, args.new_bytes)
    greedy(model, prompt, count)
    pairs = []
    for _ in range(args.repetitions):
        _, slow = theirs.generate(prompt, count)
        first, fast = stream_seconds(model, prompt, args.new_bytes)
        whole = greedy(model, prompt, count).stats.seconds
        pairs.append((slow / count * 1e3, fast * 1e3, (first - 8 * fast) * 1e3, slow / whole))
    slow, fast, prompt_ms, whole = zip(*pairs, strict=True)
    return {
        "context": context,
        "bytes_agree": ours.bytes[0][:count] == expected,
        "bytes_compared": count,
        "bytes_per_patch_context": (context + 1) / len(model.patch_lengths(vocab.encode(prompt))),
        "bytes_per_patch_generated": ours.stats.bytes / ours.stats.patches,
        "transformers": {"ms_per_byte": statistics.median(slow), "all": slow},
        "bytelax": {
            "ms_per_byte": statistics.median(fast),
            "all": fast,
            "prompt_ms": statistics.median(prompt_ms),
            "compile_seconds": ours.stats.compile_seconds,
        },
        "ratio": spread([a / b for a, b in zip(slow, fast, strict=True)]),
        "ratio_of_least": min(slow) / min(fast),
        "ratio_with_prompt": spread(whole),
    }


# The floor: reading everything once.


def memory_bandwidth(megabytes: int) -> dict[str, float]:
    """GB/s of reading an array far larger than the caches, by threads: the best of ten."""
    array = np.ones(megabytes * 2**20 // _FLOAT, np.float32)

    def seconds(threads, pool):
        begin = time.perf_counter()
        list(pool.map(np.max, np.array_split(array, threads)))
        return time.perf_counter() - begin

    result = {}
    for threads in (1, 2):
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            best = min(seconds(threads, pool) for _ in range(10))
        result[str(threads)] = array.nbytes / 1e9 / best
    return result


def floor(model: bytelax.Model, row: dict, bandwidth: dict[str, float]) -> dict:
    """Bytes that must be read for one byte, and how long memory takes to give them.

    Patcher, encoder and decoder are read once a byte, the global transformer and what else runs
    when a patch closes once a patch. Of embeddings a row is read, which is not counted.
    """
    c = model.config
    context, bytes_per_patch = row["context"], row["bytes_per_patch_generated"]
    once_a_byte, once_a_patch = weights(model)

    def cache(config, positions):
        seen = positions if config.window is None else min(positions, config.window)
        return 2 * config.layers * seen * config.kv_heads * config.head_dim * _FLOAT

    local = sum(cache(part, context) for part in (c.patcher.trunk, c.encoder, c.decoder))
    patches = cache(c.global_transformer, round(context / row["bytes_per_patch_context"]))
    total = once_a_byte * _FLOAT + local + (once_a_patch * _FLOAT + patches) / bytes_per_patch
    return {
        "weights_once_a_byte_mb": once_a_byte * _FLOAT / 1e6,
        "weights_once_a_patch_mb": once_a_patch * _FLOAT / 1e6,
        "caches_once_a_byte_mb": local / 1e6,
        "caches_once_a_patch_mb": patches / 1e6,
        "mb_per_byte": total / 1e6,
        "ms_per_byte": {threads: total / 1e6 / speed for threads, speed in bandwidth.items()},
    }


def weights(model: bytelax.Model) -> tuple[int, int]:
    """Parameters read at every byte, and at every patch."""
    byte = patch = 0
    for path, x in jax.tree_util.tree_leaves_with_path(model.params):
        network, *names = [entry.key for entry in path]
        if names[-1] == "embedding":
            continue
        keys = {"key_value", "key_norm"} & set(names)
        cross = any(name.startswith("cross") for name in names)
        closing = (
            network == "global_transformer"
            or names[0] == "split"
            or (network == "encoder" and cross and not keys)
            or (network == "decoder" and cross and keys)
        )
        if closing:
            patch += x.size
        else:
            byte += x.size
    return byte, patch


# Where the time goes.


def profile(
    model: bytelax.Model, prompt: bytes, count: int, scratch: pathlib.Path
) -> dict[str, float]:
    """Milliseconds and thunks a byte by part, from a trace of the decoding program."""
    greedy(model, prompt, count)
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        with jax.profiler.trace(directory, profiler_options=options):
            greedy(model, prompt, count)
        (path,) = pathlib.Path(directory).rglob("*.xplane.pb")
        thunks = list(traced_thunks(jax.profiler.ProfileData.from_file(str(path))))
    names = operation_names(scratch / "hlo", {thunk.operation for thunk in thunks})
    leaves = [thunk for thunk in thunks if not thunk.operation.startswith(_CONTAINERS)]
    seconds, number = collections.Counter(), collections.Counter()
    parts = [part_of(names.get(thunk.operation, "")) for thunk in leaves]
    number.update(parts)
    for part, nanoseconds in shares(leaves, parts):
        seconds[part] += nanoseconds
    return {
        "ms_per_byte": {part: seconds[part] / count / 1e6 for part in (*_PARTS, _GAP)},
        "thunks_per_byte": {part: number[part] / count for part in _PARTS},
    }


@dataclasses.dataclass(frozen=True)
class Thunk:
    """One run of one HLO instruction, in nanoseconds."""

    operation: str
    begin: float
    end: float


def traced_thunks(data: jax.profiler.ProfileData) -> Iterator[Thunk]:
    """The thunks of the decoding program. One that runs elsewhere ends at its `end:` event."""
    begun, ends = [], {}
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if event.name.startswith("end: "):
                    ends[stats.get("_c")] = event.start_ns
                elif stats.get("hlo_module") == "jit__advance":
                    begun.append((event, stats.get("_p")))
    for event, key in begun:
        end = max(event.end_ns, ends.get(key, 0))
        yield Thunk(event.name, event.start_ns, end)


def operation_names(directory: pathlib.Path, operations: set[str]) -> dict[str, str]:
    """`op_name` by instruction, from the HLO dump that holds most of `operations`."""
    dumps = directory.glob("*advance*cpu_after_optimizations.txt")
    programs = [named_instructions(path.read_text()) for path in dumps]
    return max(programs, key=lambda names: len(operations & names.keys()), default={})


def named_instructions(hlo: str) -> dict[str, str]:
    """`op_name` by instruction; one without (every product) is named as what it computes with."""
    names = {}
    for line in hlo.splitlines():
        found = re.match(r"\s+(?:ROOT )?%(\S+) = ", line)
        if not found or "get-tuple-element(" in line or " constant(" in line:
            continue
        own = re.search(r'op_name="([^"]*/[^"]*)"', line)
        operands = re.findall(r"%([\w.-]+)", line[found.end() :])
        inherited = (names[operand] for operand in operands if names.get(operand))
        names[found.group(1)] = own.group(1) if own else next(inherited, "")
    return names


def part_of(name: str) -> str:
    """The part of the model that an `op_name` belongs to."""
    if "patcher" in name:
        return "patcher"
    if "global_transformer" in name:
        return "global"
    if "body/while/body" in name:
        return "closing patches"
    if "/encoder" in name or "cross.keys_values" in name:
        return "encoder"
    if "/decoder" in name:
        return "decoder"
    return "loop and sampling"


def shares(thunks: list[Thunk], parts: list[str]) -> Iterator[tuple[str, float]]:
    """Splits the wall clock evenly among the thunks in flight."""
    changes = [(thunk.begin, 1, part) for thunk, part in zip(thunks, parts, strict=True)]
    changes += [(thunk.end, -1, part) for thunk, part in zip(thunks, parts, strict=True)]
    changes.sort()
    flying = collections.Counter()
    for (now, step, part), (later, _, _) in itertools.pairwise(changes):
        flying[part] += step
        total = flying.total()
        if total == 0:
            yield _GAP, later - now
        for name, several in flying.items():
            if several:
                yield name, (later - now) * several / total


# The report.


def conditions(threads: int, load: float) -> dict:
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu_name(),
        "threads": threads,
        "omp_wait_policy": os.environ["OMP_WAIT_POLICY"],
        "load_average": {"before": load, "after": os.getloadavg()[0]},
        "python": platform.python_version(),
        **{
            name: importlib.metadata.version(name)
            for name in ("bytelax", "jax", "jaxlib", "torch", "transformers", "numpy")
        },
    }


def describe(model: bytelax.Model) -> dict:
    leaves = jax.tree_util.tree_leaves_with_path(model.params)
    hashes = model.params["encoder"]["hash_embed"]["embedding"].size
    return {
        "parameters_without_hash_table": sum(x.size for _, x in leaves) - hashes,
        "threshold": model.config.patching.threshold,
    }


def markdown(results: dict) -> str:
    c = results["conditions"]
    flat = results["flatness"]
    lines = [
        "# One byte in transformers and in bytelax",
        "",
        *(["Smoke run: the times mean nothing.", ""] if results["smoke"] else []),
        f"{results['model']['parameters_without_hash_table'] / 1e6:.1f}M parameters, float32, "
        "greedy, one prompt, plain decoding. Medians of "
        f"{len(results['contexts'][0]['bytelax']['all'])} pairs measured in turn; in brackets the "
        "least and the greatest ratio of a pair. Compiling is not counted.",
        "",
        f"{c['cpu']}, {c['threads']} threads, {c['date']}, Python {c['python']}, jax {c['jax']}, "
        f"torch {c['torch']}, transformers {c['transformers']} (`use_cache=False`); "
        f"load average {c['load_average']['before']:.1f} before, "
        f"{c['load_average']['after']:.1f} after.",
        "",
        *_speed_table(results["contexts"]),
        "",
        f"From the shortest context to the longest a byte takes {flat['transformers']:.2f} times "
        f"as long in transformers and {flat['bytelax']:.2f} times as long in bytelax. "
        f"Of the text's 8-grams {results['text']['distinct_8_grams']:.0%} are distinct.",
        "",
        "## Floor",
        "",
        "What must be read for a byte, over the bandwidth of memory: "
        + ", ".join(
            f"{speed:.1f} GB/s with {threads} thread{'s' * (threads != '1')}"
            for threads, speed in results["bandwidth_gb_per_second"].items()
        )
        + ". Weights that stay in the last-level cache are faster than that.",
        "",
        *_floor_table(results["contexts"]),
        "",
        "## Where bytelax's time goes",
        "",
        "Milliseconds a byte (thunks a byte) by XLA's trace. Tracing slows the small thunks down.",
        "",
        *_profile_table(results["profile"]),
    ]
    return "\n".join(lines) + "\n"


def _speed_table(rows):
    head = ("context", "transformers, ms", "bytelax, ms", "ratio", "ratio of the least times",
            "prompt in bytelax, ms", "ratio, prompt counted", "same bytes",
            "bytes a patch: prompt, new", "compiling, s")  # fmt: skip
    yield from _table(head, (
        (
            row["context"],
            f"{row['transformers']['ms_per_byte']:.0f}",
            f"{row['bytelax']['ms_per_byte']:.2f}",
            _bracketed(row["ratio"]),
            f"{row['ratio_of_least']:.1f}",
            f"{row['bytelax']['prompt_ms']:.0f}",
            _bracketed(row["ratio_with_prompt"]),
            f"{row['bytes_compared'] if row['bytes_agree'] else 'NO'}",
            f"{row['bytes_per_patch_context']:.2f}, {row['bytes_per_patch_generated']:.2f}",
            f"{row['bytelax']['compile_seconds']:.0f}",
        )
        for row in rows
    ))  # fmt: skip


def _floor_table(rows):
    head = ("context", "weights a byte, MB", "weights a patch, MB", "caches a byte, MB",
            "caches a patch, MB", "read a byte, MB", "floor 1 thread, ms", "floor 2 threads, ms",
            "bytelax over that")  # fmt: skip
    yield from _table(head, (
        (
            row["context"],
            *(f"{x:.1f}" for x in list(row["floor"].values())[:5]),
            *(f"{ms:.2f}" for ms in row["floor"]["ms_per_byte"].values()),
            f"{row['bytelax']['ms_per_byte'] / row['floor']['ms_per_byte']['2']:.2f}",
        )
        for row in rows
    ))  # fmt: skip


def _profile_table(profiles):
    yield from _table(("context", *_PARTS, _GAP, "sum"), (
        (
            p["context"],
            *(f"{p['ms_per_byte'][part]:.2f} ({p['thunks_per_byte'][part]:.0f})"
              for part in _PARTS),
            f"{p['ms_per_byte'][_GAP]:.2f}",
            f"{sum(p['ms_per_byte'].values()):.2f} ({sum(p['thunks_per_byte'].values()):.0f})",
        )
        for p in profiles
    ))  # fmt: skip


def _table(head: Iterable[str], rows: Iterable[Iterable]) -> Iterator[str]:
    head = list(head)
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"


def spread(values: Iterable[float]) -> dict[str, float]:
    values = list(values)
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def distinct(text: bytes, size: int) -> float:
    """The share of distinct n-grams: small when the text loops."""
    grams = [text[i : i + size] for i in range(len(text) - size + 1)]
    return len(set(grams)) / len(grams)


def _bracketed(ratio):
    return f"{ratio['median']:.1f} ({ratio['least']:.1f}-{ratio['greatest']:.1f})"


def _progress(row):
    return (
        f"context {row['context']}: transformers {row['transformers']['ms_per_byte']:.1f} ms, "
        f"bytelax {row['bytelax']['ms_per_byte']:.2f} ms a byte, "
        f"the same {row['bytes_compared']} bytes: {row['bytes_agree']}"
    )


def _limit_threads(threads: int) -> int:
    """Confines the process to `threads` CPUs, before any pool of threads is made."""
    if not hasattr(os, "sched_setaffinity"):
        return min(threads, os.cpu_count() or 1)
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, cpus)
    return len(cpus)


def _cpu_name() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return found.group(1) if found else platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
