"""What turns, samples and constraints save or cost, at one row.

A turn that is appended to a text that is kept, beside prefilling all of it; several samples of one
prompt, beside as many prompts; greedy bytes under a constraint that allows every byte, beside free
ones. Times are of whole calls, in turns. "Times as long": the other way over ours.

    python -m experiments.studies.requests --data DIR
"""

import statistics
import time
from collections.abc import Callable

import numpy as np

import bytelax
from bytelax.decode import Automaton
from bytelax.measure.timing import Ratio
from experiments import study
from experiments.harness.bundled_data import held_out
from experiments.study import Column

METHODS = (("tiny-lm", "ar"), ("tiny-lm", "eagle"), ("tiny", "ar"), ("tiny", "blt-s"))
STATES = 256  # of the constraint: one for each byte
TURN, SAMPLES, CONSTRAINT = "turn", "samples", "constraint"
COLUMNS = [
    Column("what", "what"),
    Column("sizes", "options"),
    Column("model", "model"),
    Column("method", "method"),
    Column("ms", "ms", ".0f"),
    Column("the other way, ms", "other_ms", ".0f"),
    Column("times as long", "ratio", ".2f"),
    Column("same bytes", "same_bytes"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--kept", type=int, default=3900, help="bytes before a turn")
    options.add_argument("--turn", type=int, default=100, help="bytes of a turn")
    options.add_argument("--samples", type=int, default=8)
    options.add_argument("--prompt", type=int, default=1000, help="bytes that samples share")
    options.add_argument("--new", type=int, default=64, help="bytes of a sample")
    options.add_argument("--long", type=int, default=400, help="bytes under a constraint")
    options.add_argument("--repeats", type=int, default=9)
    options = options.parse_args()
    if options.smoke:
        options.kept, options.turn, options.prompt, options.new, options.long = 40, 9, 20, 3, 5
        options.samples, options.repeats = 2, 1
    sizes = {
        TURN: {"kept": options.kept, "turn": options.turn},
        SAMPLES: {"samples": options.samples, "prompt": options.prompt, "new": options.new},
        CONSTRAINT: {"new": options.long},
    }
    settings = [
        {"what": what, "model": model, "method": method, "options": own}
        for model, method in METHODS
        for what, own in sizes.items()
    ]
    (text, *_) = held_out(options.data, options.kept + options.turn + 1000).values()
    study.run(
        "requests", options, settings[: 3 if options.smoke else None],
        lambda setting: measure(setting, text, options.repeats),
        conditions={"repeats": options.repeats},
    )  # fmt: skip


def measure(setting: dict, text: bytes, repeats: int) -> dict:
    model = bytelax.load(setting["model"], dtype="float32")
    ours, other = WAYS[setting["what"]](model, setting["method"], text, **setting["options"])
    own, others, same = [], [], True
    for repeat in range(repeats + 1):  # the first compiles
        mine, one = ours(repeat)
        its, two = other(repeat)
        same = same and one == two
        if repeat:
            own.append(mine)
            others.append(its)
    median, low, high = Ratio.of(others, own)
    return {
        "ms": 1e3 * statistics.median(own), "other_ms": 1e3 * statistics.median(others),
        "ratio": {"value": median, "interval": [low, high]}, "same_bytes": same,
    }  # fmt: skip


Way = Callable[[int], tuple[float, list[bytes]]]  # from a seed to seconds, and what was written


def turn(model, method, text, *, kept: int, turn: int) -> tuple[Way, Way]:
    before, more = text[:kept], text[kept:][:turn]
    how = {"method": method, "max_new_bytes": 1, "allow_eos": False}
    (answer,) = bytelax.generate(model, [before], **how).bytes

    def appended(seed):
        results = bytelax.turns(model, [before, more], seeds=seed, **how)
        next(results)
        begin = time.perf_counter()
        result = next(results)
        return time.perf_counter() - begin, [result.bytes]

    return appended, lambda seed: timed(model, [before + answer + more], seeds=seed, **how)


def samples(model, method, text, *, samples: int, prompt: int, new: int) -> tuple[Way, Way]:
    how = {"method": method, "max_new_bytes": new, "allow_eos": False, "temperature": 1.0}
    shared = text[:prompt]
    return (
        lambda seed: timed(model, [shared], samples=samples, seeds=samples * seed, **how),
        lambda seed: timed(model, [shared] * samples, seeds=samples * seed, **how),
    )


def constraint(model, method, text, *, new: int) -> tuple[Way, Way]:
    following = np.broadcast_to(np.arange(STATES, dtype=np.int32), (STATES, 256))
    anything = Automaton.of(following, range(STATES))  # a byte is the state it leads to
    how = {"method": method, "max_new_bytes": new, "allow_eos": False}
    return (
        lambda seed: timed(model, [text[:128]], constraint=anything, **how),
        lambda seed: timed(model, [text[:128]], **how),
    )


WAYS = {TURN: turn, SAMPLES: samples, CONSTRAINT: constraint}


def timed(model, prompts, **how) -> tuple[float, list[bytes]]:
    begin = time.perf_counter()
    written = bytelax.generate(model, prompts, **how).bytes
    return time.perf_counter() - begin, written


if __name__ == "__main__":
    main()
