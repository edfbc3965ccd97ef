"""Loads a checkpoint and generates in a process of its own; prints memory and time by stage.

python -m experiments.speed.memory_1b.child DIRECTORY KIND
"""

import json
import sys
import threading
import time

import psutil

PLACES = (128, 512)  # bytes of text in front of those that are timed
TURN, TURNS = 16, 3  # bytes decoded in a call, and calls that are timed


class Stages:
    """The peak of resident memory in each stage, looked at twenty times a second."""

    def __init__(self):
        self.rows, self._process = {}, psutil.Process()
        self._name, self._peak = "imports", 0
        self._begin = time.perf_counter()
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self, following: str = "") -> None:
        """Ends a stage; `following` is the name of the next."""
        now = self._process.memory_info().rss
        self.rows[self._name] = {
            "seconds": time.perf_counter() - self._begin,
            "peak_gb": max(self._peak, now) / 1e9,
            "resident_gb": now / 1e9,
        }
        print(json.dumps({"stage": self._name, **self.rows[self._name]}), flush=True)
        self._name, self._peak, self._begin = following, 0, time.perf_counter()

    def _watch(self):
        while True:
            self._peak = max(self._peak, self._process.memory_info().rss)
            time.sleep(0.05)


def main(directory: str, kind: str) -> None:
    stages = Stages()
    import jax
    import numpy as np

    import bytelax
    from bytelax import compiling, requests
    from bytelax.engine import Engine

    compiling.keep_programs()
    stages.end("load")
    how = {"quantize": "int8", "dtype": "bfloat16"} if kind == "int8" else {"dtype": kind}
    model = bytelax.load(directory, max_patch_length=4, patching_threshold=100.0, **how)
    weights = sum(x.nbytes for x in jax.tree.leaves(model.params))
    engine = Engine.of(model, max_new_bytes=(TURNS + 1) * TURN, allow_eos=False)
    capacity = engine.capacity(max(PLACES))

    def begun(place):
        """A text of as many bytes, read; the programs are the same for all of them."""
        text = requests.encode(b"A byte latent transformer reads bytes. " * place)
        prompt = text[: place - TURN]
        decoding = engine.start([prompt], np.zeros(1, np.uint32), rows=1, capacity=capacity)
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
