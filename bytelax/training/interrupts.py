"""SIGINT and SIGTERM during a training run: stop the run at the next step, and log that at once."""

import os
import signal
import threading
from collections.abc import Callable

import jax

from bytelax.pods import distributed

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context that records SIGINT and SIGTERM instead of terminating.

    A second signal is not caught. Outside the main thread no signal is.

    Args:
      every: number of steps between two in which several processes agree on whether to stop.
      tell: shows a message. It is called at the first signal, by another thread: while the main one
        compiles or waits for a device, Python may handle no signal.
    """

    def __init__(self, every: int, tell: Callable[[str], None]):
        self._every, self._tell = every, tell
        self._noted = False
        self._before: dict = {}
        self._pipe: tuple[int, int] | None = None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self._pipe = reads, writes = os.pipe()
            os.set_blocking(writes, False)
            self._wakeup = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
            self._watcher = threading.Thread(target=self._watch, args=(reads,), daemon=True)
            self._watcher.start()
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_):
        self._restore()
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup)
            reads, writes = self._pipe
            os.close(writes)  # the watcher reads the end
            self._watcher.join()
            os.close(reads)

    def agreed(self, step: int) -> bool:
        """Whether to stop. Several processes synchronize on this in every `every`-th step."""
        if jax.process_count() == 1:
            return self._noted
        return step % self._every == 0 and distributed.anywhere(self._noted)

    def _note(self, *_):
        self._noted = True
        self._restore()

    def _restore(self):
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _watch(self, reads):
        told = False
        while number := os.read(reads, 1):
            if number[0] in _SIGNALS and not told:
                told = True
                every = 1 if jax.process_count() == 1 else self._every
                self._tell(
                    f"stopping within {every + 1} steps, with a checkpoint; "
                    "another Ctrl-C stops without one"
                )
