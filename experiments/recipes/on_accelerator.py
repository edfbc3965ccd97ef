"""Trains bundled models on one accelerator, a stage a command, each for a number of seconds.

    python -m experiments.recipes.on_accelerator small-lm --data DIR --runs RUNS --seconds 290

Stages: `small-lm`; `small-draft`, several sizes of draft model that share the pass of their teacher
`small-lm`; `small-heads`, its heads; and `tiny` and `tiny-d`, which go on from the bundled `tiny`,
with a quarter of the patches read one patch late. The learning rate follows the share of the time
that has passed, so that a stage ends whole at whatever speed the card reaches. Parameters are
float32 and products bfloat16. The layers of a stack are held as one array, which keeps the
orthogonalization of Muon to a few products. `bytelax train` needs none of this; here minutes count.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import pathlib
import queue
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib
from rich.console import Console

import bytelax
from bytelax import checkpoints
from bytelax.models import kv_cache
from bytelax.models.blt import BLT
from bytelax.models.byte_lm import ByteLM
from bytelax.models.configs import ByteLMConfig, TransformerConfig
from bytelax.models.execution import Execution
from bytelax.options import EagleHead, EarlyExitHead, HeadsConfig, MedusaHead, TwoByteHead
from bytelax.systems import trained
from bytelax.training import documents, objectives, optimizer, packing, train_loop
from bytelax.training.configs import CorruptionConfig
from bytelax.training.head_objective import HeadLoss
from experiments.harness import bundled_data

FALL = 0.5  # share of a run after which the learning rate falls to zero, of one from scratch
FALL_GOING_ON = 0.3
WARMUP, PEAK, DECAY = 100, 3e-3, 0.05
SAVE_EVERY = 120.0  # seconds
LATE = 0.25
_STACKED = "layers_*"


def byte_lm(dim, layers, ffn_dim, heads, window):
    sizes = {"heads": heads, "kv_heads": heads, "head_dim": dim // heads, "window": window}
    return ByteLMConfig(trunk=TransformerConfig(dim=dim, layers=layers, ffn_dim=ffn_dim, **sizes))


SMALL = byte_lm(512, 10, 1376, 8, 512)
DRAFTS = {
    "draft-64x2": byte_lm(64, 2, 192, 2, 128),
    "draft-128x2": byte_lm(128, 2, 352, 2, 128),
    "draft-128x4": byte_lm(128, 4, 352, 2, 128),  # bundled as `small-draft`
    "draft-192x4": byte_lm(192, 4, 512, 3, 128),
}
HEADS = HeadsConfig(
    eagle=EagleHead(depths=(3, 6, 10)),
    early_exit=EarlyExitHead(depths=(3, 5)),
    medusa=MedusaHead(count=3, correction=True),
    two_byte=TwoByteHead(depths=(5, 10)),
)


@dataclasses.dataclass(frozen=True)
class Students(objectives.Objective):
    """The sum of KL(teacher || student) over several students, which share the teacher's pass."""

    module: ByteLM  # the teacher
    students: tuple[ByteLM, ...]

    def init(self, key):
        ids = jnp.zeros((1, 8), jnp.int32)
        keys = jax.random.split(key, len(self.students))
        return {
            str(k): student.init(own, ids)["params"]
            for k, (student, own) in enumerate(zip(self.students, keys, strict=True))
        }

    def loss(self, params, ids, key):
        taught = self.module.apply({"params": params["teacher"]}, ids[:, :-1])
        taught = jax.lax.stop_gradient(jax.nn.log_softmax(taught))
        metrics = {}
        for k, student in enumerate(self.students):
            logits = student.apply({"params": params[str(k)]}, ids[:, :-1])
            said = jax.nn.log_softmax(logits)
            apart = (jnp.exp(taught) * (taught - said)).sum(-1)
            overlap = jnp.minimum(jnp.exp(taught), jnp.exp(said)).sum(-1)
            metrics |= {
                f"divergence_{k}": objectives.summed(apart),
                f"overlap_{k}": objectives.summed(overlap),
            }
        loss = sum(total / count for name, (total, count) in metrics.items() if "div" in name)
        return loss, metrics


@dataclasses.dataclass(frozen=True)
class Stage:
    """What a stage trains, and how.

    Attributes:
      objective: the loss.
      initial: parameters to go on from; None begins at random.
      frozen: parameters that stay as they are.
      save: writes the trained parameters to a directory.
      window, batch: bytes of an example, and examples of a step.
      muon_peak: peak learning rate of Muon.
      fall: share of the run after which the learning rate falls.
      seed: seed of the data.
    """

    objective: objectives.Objective
    initial: dict | None = None
    frozen: dict = dataclasses.field(default_factory=dict)
    save: object = None
    window: int = 1024
    batch: int = 64
    muon_peak: float = 0.012
    fall: float = FALL
    seed: int = 3


def stage_of(name: str, runs: pathlib.Path) -> Stage:
    """A stage by its name; earlier ones are read from `runs`."""

    def save(config, params, path=None):
        params = jax.tree.map(np.asarray, params)
        where = runs / (path or name)
        checkpoints.write(where, config, params, layout="huggingface", overwrite=True)

    if name == "small-lm":
        small = Stage(objectives.NextByte(ByteLM(SMALL)), muon_peak=0.02, seed=0)
        return dataclasses.replace(small, save=functools.partial(save, SMALL))
    if name in ("small-draft", "small-heads"):
        _, trunk = checkpoints.read(runs / "small-lm", dtype="float32")
    if name == "small-draft":
        objective = Students(ByteLM(SMALL), tuple(map(ByteLM, DRAFTS.values())))

        def save_each(params):
            for k, (draft, config) in enumerate(DRAFTS.items()):
                save(config, params[str(k)], draft)

        return Stage(objective, frozen={"teacher": trunk}, save=save_each, seed=1)
    if name == "small-heads":
        config = dataclasses.replace(SMALL, heads=HEADS)
        objective = HeadLoss(module=ByteLM(config), own_outputs=8)

        def save_heads(params):
            checkpoints.write_heads(runs / name, config, params)

        made = jax.jit(functools.partial(trained.init, config))(jax.random.key(2))
        initial = {"heads": made}
        return Stage(objective, initial, trunk, save_heads, window=512, batch=32)
    source = bytelax.load("tiny")
    blocks = 16 if name == "tiny-d" else None
    config = dataclasses.replace(source.config, heads=None, block_size=blocks)
    params = {part: x for part, x in source.params.items() if part != "heads"}
    frozen = {"patcher": params.pop("patcher")}

    def save_blt(params):
        save(config, params | frozen)

    if name == "tiny":
        objective = objectives.NextByte(BLT(config), max_patches=320, late=LATE)
        return Stage(objective, params, frozen, save_blt, fall=FALL_GOING_ON)
    objective = objectives.BLTD(
        module=BLT(config), mask_loss="mean", max_patches=160, late=LATE,
        corruption=CorruptionConfig(
            block_sizes=(4, 8, 16), mid_patch=0.5, t_for_each="block", most_blocks=64
        ),
    )  # fmt: skip
    return Stage(objective, params, frozen, save_blt, window=512, fall=FALL_GOING_ON)


STAGES = ("small-lm", "small-draft", "small-heads", "tiny", "tiny-d")


def batches(data: str, runs: pathlib.Path, window: int, batch: int, seed: int):
    """Endless batches of u8[batch, window + 1] ids, made ahead by a thread."""
    sources = bundled_data.sources(data, runs)
    weights = np.array([source.weight for source in sources])
    windows = [
        packing.TrainWindows(documents.load(source, 0.01)[0], window, (seed, place))
        for place, source in enumerate(sources)
    ]
    made: queue.Queue = queue.Queue(8)

    def fill():
        taken, random = [0] * len(windows), np.random.default_rng(seed)
        while True:
            rows = []
            for place in random.choice(len(windows), batch, p=weights / weights.sum()):
                rows.append(windows[place][taken[place]])
                taken[place] += 1
            made.put(np.stack(rows).astype(np.uint8))  # UTF-8 has no byte above 247

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield made.get()


def stacked(tree):
    """Makes one array of each parameter of the layers of a stack."""
    if not isinstance(tree, dict):
        return tree
    layers = sorted((name for name in tree if name.startswith("layers_")), key=lambda x: int(x[7:]))
    out = {name: stacked(part) for name, part in tree.items() if name not in layers}
    if layers:
        out[_STACKED] = jax.tree.map(lambda *x: jnp.stack(x), *(tree[name] for name in layers))
    return out


def by_layer(tree):
    """The inverse of `stacked`."""
    if not isinstance(tree, dict):
        return tree
    out = {name: by_layer(part) for name, part in tree.items() if name != _STACKED}
    if _STACKED in tree:
        for index in range(len(jax.tree.leaves(tree[_STACKED])[0])):
            at = functools.partial(lambda index, x: x[index], index)
            out[f"layers_{index}"] = jax.tree.map(at, tree[_STACKED])
    return out


def hidden_matrices(params):
    """As `optimizer.hidden_matrices`, of layers that are stacked."""
    dimensions = optimizer.hidden_matrices(by_layer(params))

    def moved(x):
        if x is None:
            return None
        axes = (x.reduction_axis, x.output_axis)
        return contrib.MuonDimensionNumbers(*jax.tree.map(lambda axis: axis + 1, axes))

    def walk(tree, own):
        if not isinstance(tree, dict):
            return own
        first = {"layers_0" if name == _STACKED else name: name for name in tree}
        found = {name: walk(tree[name], own[place]) for place, name in first.items()}
        if _STACKED in tree:
            leaf = lambda x: x is None or isinstance(x, contrib.MuonDimensionNumbers)  # noqa: E731
            found[_STACKED] = jax.tree.map(moved, own["layers_0"], is_leaf=leaf)
        return found

    return walk(params, dimensions)


@contextlib.contextmanager
def flash_attention():
    """Runs the attention of whole texts in bfloat16 by cuDNN, on a GPU."""
    plain = kv_cache.attend_whole

    def attend(queries, keys, values, *, span):
        if queries.dtype != jnp.bfloat16 or (span.window is not None and span.window < 128):
            return plain(queries, keys, values, span=span)
        local = None if span.window is None else (span.window - 1, 0)
        return jax.nn.dot_product_attention(
            queries, keys, values, is_causal=True, local_window_size=local, implementation="cudnn"
        )

    kv_cache.attend_whole = attend
    try:
        yield
    finally:
        kv_cache.attend_whole = plain


def train(stage: Stage, data: str, seconds: float, log: pathlib.Path, say) -> None:
    """Runs a stage for a number of seconds after its compilation."""
    objective = objectives.executed(stage.objective, Execution(scan=True))
    params = stage.initial
    if params is None:
        params = jax.jit(objective.init)(jax.random.key(0))
    params = jax.tree.map(lambda x: jnp.array(x, jnp.float32), stacked(params))
    frozen = train_loop.cast(stage.frozen, "bfloat16")
    count = sum(x.size for x in jax.tree.leaves(params))
    transformation = optax.chain(
        optax.clip_by_global_norm(1.0),
        contrib.muon(
            stage.muon_peak, weight_decay=DECAY, adam_learning_rate=PEAK, adam_b2=0.95,
            muon_weight_dimension_numbers=hidden_matrices,
        ),
    )  # fmt: skip
    moments = jax.jit(transformation.init)(params)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, moments, frozen, ids, rate, number):
        key = jax.random.fold_in(jax.random.key(1), number)

        def loss(trained):
            whole = train_loop.cast(by_layer(trained), "bfloat16") | frozen
            return objective.loss(whole, ids.astype(jnp.int32), key)

        (_, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, moments = transformation.update(gradient, moments, params)
        updates = jax.tree.map(lambda x: rate * x, updates)  # both peaks follow one schedule
        return optax.apply_updates(params, updates), moments, metrics

    examples = batches(data, log.parent, stage.window, stage.batch, stage.seed)
    example = (params, moments, frozen, next(examples), np.float32(0), np.int32(0))
    say("compiling")
    run = step.lower(*example).compile()
    begin = saved = time.monotonic()
    size, number, pending = stage.batch * stage.window, 0, []
    while (share := (time.monotonic() - begin) / seconds) < 1:
        rate = min(1, (number + 1) / WARMUP) * min(1, (1 - share) / (1 - stage.fall))
        batch = next(examples)
        params, moments, metrics = run(
            params, moments, frozen, batch, np.float32(rate), np.int32(number)
        )
        number += 1
        pending.append(metrics)
        jax.block_until_ready(pending[-3:-2])
        if number % 100 == 0:
            sums = jax.tree.map(lambda *x: float(sum(map(np.asarray, x))), *pending)
            means = {name: total / count for name, (total, count) in sums.items()}
            speed = number * size / (time.monotonic() - begin)
            row = {"step": number, "bytes": number * size, "bytes_per_second": speed} | means
            row["teraflops"] = 6 * count * speed / 1e12
            with log.open("a") as file:
                file.write(json.dumps(row) + "\n")
            say(", ".join(f"{name} {value:.4g}" for name, value in row.items()))
            pending = []
        if time.monotonic() - saved > SAVE_EVERY:
            stage.save(by_layer(params))
            saved = time.monotonic()
    stage.save(by_layer(params))
    say(f"{number} steps, {number * size:,} bytes, {count:,} parameters trained")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--data", required=True, help="directory of the corpora of docs/data.md")
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--seconds", type=float, required=True, help="after the compilation")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    begin, console = time.monotonic(), Console(soft_wrap=True, highlight=False)

    def say(line):
        console.print(f"{time.monotonic() - begin:6.1f} s: {line}")

    stage = stage_of(options.stage, options.runs)
    log = options.runs / f"{options.stage}.jsonl"
    gpu = jax.default_backend() == "gpu"
    with flash_attention() if gpu else contextlib.nullcontext():
        train(stage, options.data, options.seconds, log, say)


if __name__ == "__main__":
    main()
