"""What turns, samples and constraints save or cost, at one row.

    python -m experiments.speed.requests.run --data DIR

A turn that is appended behind kept text beside prefilling all of it anew, several samples of one
prompt beside the prompt given as often, and greedy bytes under a constraint that allows every byte
beside free ones. All times are wall-clock times of whole calls, which are made in turns.
"""

import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np

import bytelax
from bytelax.decode import Automaton
from bytelax.measure.timing import Ratio
from experiments.harness import study
from experiments.harness.bundled_data import held_out

MINUTES = 2
METHODS = (("tiny-lm", "ar"), ("tiny-lm", "eagle"), ("tiny", "ar"), ("tiny", "blt-s"))
STATES = 256  # of the constraint: one for each byte
TURN, SAMPLES, CONSTRAINT = "turn", "samples", "constraint"
SAID = {
    TURN: "{turn} bytes behind {kept} kept ones, beside prefilling all of them",
    SAMPLES: "{samples} samples of one prompt, beside as many prompts",
    CONSTRAINT: "greedy bytes under a constraint, beside free ones",
}


def settings(options) -> Iterable[dict]:
    for model, method in METHODS:
        own = {"model": model, "method": method}
        yield {"what": TURN, **own, "kept": options.kept, "turn": options.turn}
        yield {"what": SAMPLES, **own, "samples": options.samples, "prompt": options.prompt,
               "new": options.new}  # fmt: skip
        yield {"what": CONSTRAINT, **own, "new": options.long}


def measure(setting: dict, text: bytes, repeats: int) -> dict:
    """Seconds of both ways, and how many times as long the one beside ours takes."""
    model = bytelax.load(setting["model"], dtype="float32")
    ours, other = WAYS[setting["what"]](setting, model, text)
    own, others, same = [], [], True
    for repeat in range(repeats + 1):  # the first compiles
        mine, one = ours(repeat)
        its, two = other(repeat)
        same = same and one == two
        if repeat:
            own.append(mine)
            others.append(its)
    return {
        "seconds": statistics.median(own), "beside": statistics.median(others),
        "ratio": Ratio.of(others, own)._asdict(), "same_bytes": same,
    }  # fmt: skip


Way = Callable[[int], tuple[float, list[bytes]]]  # from a seed to seconds, and what was written


def turn(setting, model, text) -> tuple[Way, Way]:
    kept, more = text[: setting["kept"]], text[setting["kept"] :][: setting["turn"]]
    how = {"method": setting["method"], "max_new_bytes": 1, "allow_eos": False}

    (said,) = bytelax.generate(model, [kept], **how).bytes

    def appended(seed):
        results = bytelax.turns(model, [kept, more], seeds=seed, **how)
        next(results)
        begin = time.perf_counter()
        result = next(results)
        return time.perf_counter() - begin, [result.bytes]

    return appended, lambda seed: timed(model, [kept + said + more], seeds=seed, **how)


def samples(setting, model, text) -> tuple[Way, Way]:
    how = {
        "method": setting["method"], "max_new_bytes": setting["new"], "allow_eos": False,
        "temperature": 1.0,
    }  # fmt: skip
    prompt, count = text[: setting["prompt"]], setting["samples"]
    return (
        lambda seed: timed(model, [prompt], samples=count, seeds=count * seed, **how),
        lambda seed: timed(model, [prompt] * count, seeds=count * seed, **how),
    )


def constraint(setting, model, text) -> tuple[Way, Way]:
    following = np.broadcast_to(np.arange(STATES, dtype=np.int32), (STATES, 256))
    anything = Automaton.of(following, range(STATES))  # a byte is the state it leads to
    how = {"method": setting["method"], "max_new_bytes": setting["new"], "allow_eos": False}
    return (
        lambda seed: timed(model, [text[:128]], constraint=anything, **how),
        lambda seed: timed(model, [text[:128]], **how),
    )


WAYS = {TURN: turn, SAMPLES: samples, CONSTRAINT: constraint}


def timed(model, prompts, **how) -> tuple[float, list[bytes]]:
    begin = time.perf_counter()
    written = bytelax.generate(model, prompts, **how).bytes
    return time.perf_counter() - begin, written


def main():
    options = study.parser(__doc__, __file__, model=None)
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
    asked = list(settings(options))
    if options.smoke:
        asked = asked[:3]
    (text, *_) = held_out(options.data, options.kept + options.turn + 1000).values()
    study.run(
        options.results / "results.json",
        {"repeats": options.repeats},
        asked,
        lambda setting: measure(setting, text, options.repeats),
        markdown=markdown,
    )


def markdown(report):
    rows = [
        (
            SAID[row["setting"]["what"]].format_map(row["setting"]),
            f"`{row['setting']['model']}`",
            f"`{row['setting']['method']}`",
            f"{1e3 * row['seconds']:.0f}",
            f"{1e3 * row['beside']:.0f}",
            "{median:.2f} ({lowest:.2f} to {highest:.2f})".format_map(row["ratio"]),
            "yes" if row["same_bytes"] else "no",
        )
        for row in report["rows"]
    ]
    header = ("what", "model", "method", "ms", "beside, ms", "times as long", "same bytes")
    return "\n".join([
        "# Turns, samples and constraints", "",
        "One held-out text, one request at a time, whole calls in turns, medians of "
        f"{report['repeats']} pairs with the lowest and the highest; {study.machine(report)}. "
        f"Constrained text has an automaton of {STATES} states that allows every byte: what a "
        "constraint costs in refused drafts is another matter.", "",
        *study.table(header, rows), "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
