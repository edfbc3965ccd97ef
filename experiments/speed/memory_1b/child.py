"""Loads a checkpoint and generates in a process of its own; prints memory and time by stage.

python -m experiments.speed.memory_1b.child DIRECTORY KIND
"""

import json
import sys
import time

from experiments.speed.memory_1b.stages import Stages

PATCHING = {"max_patch_length": 4, "patching_threshold": 100.0}
PLACES = (128, 512)  # bytes of text in front of those that are timed
TURN, TURNS = 16, 3  # bytes decoded in a call, and calls that are timed


def main(directory: str, kind: str) -> None:
    stages = Stages()
    import jax
    import numpy as np

    import bytelax
    from bytelax import compiling, vocab
    from bytelax.engine import Engine
    from bytelax.engine.requests import Request

    compiling.keep_programs()
    stages.end("load")
    how = {"quantize": "int8", "dtype": "bfloat16"} if kind == "int8" else {"dtype": kind}
    model = bytelax.load(directory, **PATCHING, **how)
    weights = sum(x.nbytes for x in jax.tree.leaves(model.params))
    engine = Engine.of(model, max_new_bytes=(TURNS + 1) * TURN, allow_eos=False)
    capacity = engine.capacity(Request(0, [0] * max(PLACES), 0))

    def begun(place):
        """A text of as many bytes, read; the programs are the same for all of them."""
        text = vocab.encode(b"A byte latent transformer reads bytes. " * place)
        decoding = engine.start([Request(0, text[: place - TURN], 0)], capacity=capacity)
        return jax.block_until_ready(decoding)

    stages.end("compile and prefill")
    with compiling.watch() as compiled:
        decoding = begun(PLACES[0])
        stages.end(f"compile and decode {TURN} bytes")
        jax.block_until_ready(engine.advance(decoding, rounds=TURN))
    stages.end("decode")
    wall, busy = {}, {}
    for place in PLACES:
        decoding, times = begun(place), []
        for _ in range(TURNS + 1):  # the first is not counted
            begin, spent = time.perf_counter(), time.process_time()
            decoding = jax.block_until_ready(engine.advance(decoding, rounds=TURN))
            times.append((time.perf_counter() - begin, time.process_time() - spent))
        middle = 1e3 * np.median(times[1:], axis=0) / TURN
        wall[str(place)], busy[str(place)] = map(float, middle)
    stages.end()
    figures = {"weights_gb": weights / 1e9, "compile_seconds": compiled.seconds}
    print(json.dumps({**figures, "ms_per_byte": wall, "cpu_ms_per_byte": busy}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
