"""Kernels on an accelerator: whether they are right, how fast, and what a verify pass costs.

A kernel must agree with its reference, and its bits must not depend on what each check changes:
other rows of the batch, or whether there are 1, 9, 17 or 32 of them. Times are of the kernels' own
benchmarks, in microseconds for each call: "floor" is what must be read over the bandwidth measured
for a plain copy, XLA the reference compiled for the device, "loop" what measuring costs. The exit
status is 1 where numbers or bits are wrong.

    python -m experiments.studies.accelerator_kernels [--steps check time "verify pass"]
"""

import dataclasses
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from bytelax_kernels import timing
from bytelax_kernels.append_attention import benchmark as append_benchmark
from bytelax_kernels.append_attention import gpu as append_gpu
from bytelax_kernels.cross_attention import benchmark as cross_benchmark
from bytelax_kernels.dense import benchmark as dense_benchmark
from bytelax_kernels.dense import gpu as dense_gpu
from bytelax_kernels.unmask import benchmark as unmask_benchmark
from bytelax_kernels.unmask import unmask
from bytelax_kernels.verify_attention import benchmark as attention_benchmark
from bytelax_kernels.verify_attention.benchmark import attend
from bytelax_kernels.verify_attention.sight import positions, visible

from bytelax import vocab
from bytelax.decode import Text
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.patching import PatchingConfig
from bytelax.targets.blt import BLTTarget
from experiments import study
from experiments.harness import random_blt
from experiments.harness.one_b import one_b, random_params
from experiments.study import Column

COLUMNS = [
    Column("step", "step"),
    Column("kernel", "kernel"),
    Column("case", "case"),
    Column("rows", "batch"),
    Column("error", "error", ".1e"),
    Column("right", "exact"),
    Column("floor, us", "floor_us", ".1f"),
    Column("kernel, us", "kernel_us", ".1f"),
    Column("XLA, us", "xla_us", ".1f"),
    Column("cuDNN, us", "cudnn_us", ".1f"),
    Column("loop, us", "loop_us", ".1f"),
    Column("pass of 1 byte, ms", "one_ms", ".3f"),
    Column("of 16, ms", "sixteen_ms", ".3f"),
    Column("failed", "failed"),
]


def check_attention(case, *, kernel: str) -> dict:
    """The kernel beside the reference, and its bits beside themselves."""
    inputs = attention_benchmark.example(case)
    run = jax.jit(functools.partial(attend, implementation=kernel))
    wanted = jax.jit(functools.partial(attend, implementation="xla"))(*inputs)
    error = largest_error(run(*inputs), wanted)
    return {"error": error, "exact": error < 1e-2 and same_bits(run, inputs)}


def largest_error(made, wanted) -> float:
    """The largest difference between trees of arrays, relative to one more than what is wanted."""

    def error(made, wanted):
        made, wanted = (np.asarray(x, np.float32) for x in (made, wanted))
        return float((np.abs(made - wanted) / (1 + np.abs(wanted))).max())

    return max(jax.tree.leaves(jax.tree.map(error, made, wanted)))


def both(run, kernel: str):
    """A function of inputs and `implementation`, compiled with a kernel and with XLA's."""
    return (jax.jit(functools.partial(run, implementation=which)) for which in (kernel, "xla"))


def same_bits(run, inputs) -> bool:
    """Queries in reverse rows, other rows of the batch, garbage out of sight."""
    queries, keys, values, sight = inputs
    out = np.asarray(run(*inputs))
    good = np.array_equal(np.asarray(run(*inputs)), out)
    if sight.ancestors is None:
        back = sight._replace(first=sight.first[:, ::-1], last=sight.last[:, ::-1])
        again = run(queries[:, ::-1], keys, values, back)
        good &= np.array_equal(np.asarray(again)[:, ::-1], out)
    others = [part.at[1:].multiply(2) for part in inputs[:3]]
    good &= np.array_equal(np.asarray(run(*others, sight))[0], out[0])
    hidden = ~visible(sight, positions(sight.newest, inputs.sizes.slots)).any(1)[..., None]
    hidden = hidden if inputs.in_lines else hidden[:, None]
    garbage = [jnp.where(hidden, jnp.asarray(1e4, keys.dtype), part) for part in (keys, values)]
    return bool(good and np.array_equal(np.asarray(run(queries, *garbage, sight)), out))


def check_unmask(case, *, kernel: str) -> dict:
    """The kernel beside the reference."""
    block = unmask_benchmark.example(case)._asdict()
    made, wanted = (
        jax.jit(functools.partial(unmask, rule=case.rule, implementation=name))(**block)
        for name in (kernel, "xla")
    )
    return {"exact": all(map(np.array_equal, made, wanted))}


def check_dense(case, *, kernel: str) -> dict:
    """The kernel beside the reference, and its bits for rows in reverse and for fewer of them."""

    def given(count):
        return dense_benchmark.example(case._replace(rows=count))

    def taken(count):
        operands, _ = given(count)
        return dense_gpu.takes(operands.rows, operands.panels, operands.scale, operands.onto)

    counts = [count for count in ROWS if kernel == "xla" or taken(count)]
    operands, options = given(counts[-1])
    run, plain = (
        jax.jit(lambda operands, which=which: dense_benchmark.multiply(operands, options, which))
        for which in (kernel, "xla")
    )
    made = np.asarray(run(operands), np.float32)

    def same(rows):
        onto = None if operands.onto is None else operands.onto[rows]
        out = run(operands._replace(rows=operands.rows[rows], onto=onto))
        return np.array_equal(np.asarray(out, np.float32), made[rows])

    error = largest_error(made, plain(operands))
    changed = [slice(None, None, -1), *map(slice, counts[:-1])]
    same_bits = [same(rows) for rows in changed if kernel != "xla"]
    return {"error": error, "exact": error < 3e-2 and all(same_bits), "counts": counts}


def check_append(case, *, kernel: str) -> dict:
    """The kernel beside its two steps, and its bits beside another row and for fewer entries."""

    def given(count):
        return append_benchmark.example(case._replace(window=count))

    group = case.heads // case.kv_heads
    sizes = sorted({max(1, count // group) for count in ROWS})
    counts = [count for count in sizes if kernel == "xla" or append_gpu.takes(given(count))]
    window = given(counts[-1])
    run, plain = both(append_benchmark.attend, kernel)
    made = run(window)
    error = largest_error(made, plain(window))
    qkv = window.projections.qkv.at[1:].multiply(2)
    others = window._replace(projections=window.projections._replace(qkv=qkv))
    same = np.array_equal(run(others)[0][0], made[0][0])
    _, keys, values = made

    def last(count):
        """Whether the last entries give the same on the cache that all of them are in."""
        projections, sight = window.projections, window.sight
        again = window._replace(
            projections=projections._replace(
                qkv=projections.qkv[:, -count:], turns=projections.turns[:, -count:]
            ),
            keys=keys,
            values=values,
            positions=window.positions[:, -count:],
            sight=sight._replace(first=sight.first[:, -count:], last=sight.last[:, -count:]),
        )
        return np.array_equal(run(again)[0], made[0][:, -count:])

    same = same and (kernel == "xla" or all(map(last, counts[:-1])))
    return {"error": error, "exact": error < 1e-2 and same, "counts": counts}


def check_cross(case, *, kernel: str) -> dict:
    """The kernel beside XLA, and its bits beside another row."""
    inputs = cross_benchmark.example(case)
    run, plain = both(cross_benchmark.run, kernel)
    made = run(inputs)
    error = largest_error(made, plain(inputs))
    others = inputs._replace(new=tuple(x.at[1:].multiply(2) for x in inputs.new))
    same = np.array_equal(run(others)[0][0], made[0][0])
    return {"error": error, "exact": error < 1e-2 and same}


def verify_pass(batch: int, length: int = 2049, *, shape: BLTConfig, repeats: int = 50) -> dict:
    """A verify pass of 16 bytes beside a pass of one that runs the global model, too.

    A model of this shape with random weights. Patches are cut to four bytes and end where a
    multiple of four does, so that a pass of one byte behind a text of `length` closes one.
    """
    assert length % 4 == 1
    patching = PatchingConfig(threshold=100.0, max_patch_length=4)
    # Of the hash table only rows are read.
    hashing = HashConfig(vocab=5003)
    module = BLT(dataclasses.replace(shape, patching=patching, hashing=hashing))
    params = random_params(module)
    target = BLTTarget(module, window=16)
    ids = jnp.full((batch, length + 63), vocab.OFFSET + 32, jnp.int32).at[:, 0].set(vocab.BOS)
    text = Text(ids, jnp.full(batch, length, jnp.int32))
    state = jax.jit(target.prefill)(params, text)
    row = {}
    for name, width in (("one_ms", 1), ("sixteen_ms", 16)):
        spent = timing.seconds_of_step(
            functools.partial(extended_and_taken_back, BLTTarget(module, window=width)),
            (state, ids[:, 1 : 1 + width]),
            params,
            repeats=repeats,
        )
        row[name] = 1e3 * spent
    return row


def extended_and_taken_back(target, carry, params):
    state, window = carry
    logits, trial = target.extend(params, state, window)
    state = target.commit(trial, jnp.zeros(window.shape[0], jnp.int32))
    return state, window + 0 * logits.argmax(-1).astype(window.dtype)


KERNELS = {
    "unmask": (unmask_benchmark, check_unmask),
    "verify_attention": (attention_benchmark, check_attention),
    "dense": (dense_benchmark, check_dense),
    "append_attention": (append_benchmark, check_append),
    "cross_attention": (cross_benchmark, check_cross),
}
FOR_GPUS = ("dense", "append_attention", "cross_attention")
ROWS = (1, 9, 17, 32)  # numbers of rows, or of queries, that give the same bits
STEPS = ("check", "time", "verify pass")


def settings(platform: str) -> list[dict]:
    """What is right comes first: a run that is cut short has said that."""
    cases = [
        {"step": step, "kernel": kernel, "case": case}
        for step in ("check", "time")
        for kernel, (benchmark, _) in KERNELS.items()
        for case in benchmark.CASES
        if platform == "gpu" or kernel not in FOR_GPUS
    ]
    return cases + [{"step": "verify pass", "batch": batch} for batch in (1, 8)]


def measure(setting: dict, *, kernel: str, smoke: bool = False) -> dict:
    """One row of the results; what does not run says why. `kernel` is "gpu", "tpu" or "xla"."""
    try:
        if setting["step"] == "verify pass":
            if smoke:
                toy = random_blt.SHAPES["smallest"]
                return verify_pass(setting["batch"], 41, shape=toy, repeats=1)
            return verify_pass(setting["batch"], shape=one_b())
        benchmark, check = KERNELS[setting["kernel"]]
        case = benchmark.CASES[setting["case"]]
        if setting["step"] == "check":
            return check(case, kernel=kernel)
        return benchmark.times(case, timing.bandwidth(2**20) if smoke else bandwidth())
    except Exception as error:  # of any kind: the other rows still count
        return {"exact": False, "failed": f"{type(error).__name__}: {str(error)[:300]}"}


@functools.cache
def bandwidth() -> float:
    return timing.bandwidth()


def firsts(found: list[dict]) -> list[dict]:
    """The first row of each step and kernel; one alone is timed, which takes a moment."""
    first = {(each["step"], each.get("kernel")): each for each in reversed(found)}
    return [each for name, each in first.items() if name[0] != "time" or name[1] == "unmask"]


def main() -> int:
    parser = study.parser(__doc__)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    options = parser.parse_args()
    platform = jax.devices()[0].platform
    if platform not in ("gpu", "tpu") and not options.smoke:
        print(f"needs a GPU or a TPU, found {jax.devices()[0]}", file=sys.stderr)
        return 2
    found = settings("gpu" if options.smoke else platform)
    if options.smoke:
        found = firsts(found)
        platform = platform if platform in ("gpu", "tpu") else "xla"  # beside itself
    chosen = [each for each in found if each["step"] in options.steps]

    def row(setting):
        found = measure(setting, kernel=platform, smoke=options.smoke)
        print(setting, found, flush=True)
        return found

    rows = study.run("accelerator_kernels", options, chosen, row)
    asked = [row for row in rows if row["setting"] in chosen]
    return int(not all(row.get("exact", True) for row in asked))


if __name__ == "__main__":
    sys.exit(main())
