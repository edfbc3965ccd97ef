"""Prints the memory and the time that each stage of a process takes."""

import json
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
