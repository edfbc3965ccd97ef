"""Loads a checkpoint and generates in a process of its own; prints memory and time by stage.

python -m experiments.speed.memory_1b.child DIRECTORY KIND NEW
"""

import json
import sys
import threading
import time

import psutil


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


def main(directory: str, kind: str, new: int) -> None:
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
    stages.end("compile and prefill")
    engine = Engine.of(model, max_new_bytes=new, allow_eos=False)
    prompt = requests.encode(b"A byte latent transformer reads bytes")
    capacity = engine.capacity(len(prompt))
    with compiling.watch() as compiled:
        decoding = engine.start([prompt], np.zeros(1, np.uint32), rows=1, capacity=capacity)
        jax.block_until_ready(decoding)
        stages.end("compile and decode 16 bytes")
        decoding = jax.block_until_ready(engine.advance(decoding, rounds=16))
    stages.end("decode")
    times = []
    for _ in range(new // 16 - 1):
        begin, busy = time.perf_counter(), time.process_time()
        decoding = jax.block_until_ready(engine.advance(decoding, rounds=16))
        times.append((time.perf_counter() - begin, time.process_time() - busy))
    stages.end()
    wall, busy = 1e3 * np.array(times).T / 16

    def near(milliseconds):
        """Medians of the five calls before 128 and before 512 bytes."""
        ends = {at: at // 16 - 1 for at in (128, 512) if at <= new}
        return {str(at): np.median(milliseconds[max(end - 5, 0) : end]) for at, end in ends.items()}

    print(
        json.dumps(
            {
                "weights_gb": weights / 1e9,
                "compile_seconds": compiled.seconds,
                "ms_per_byte": near(wall),
                "cpu_ms_per_byte": near(busy),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
