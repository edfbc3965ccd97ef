"""The lock on a run's directory, and its signal handlers."""

import contextlib
import fcntl
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator

import jax

from bytelax.pods import distributed
from bytelax.training.train_state import TrainingError


@contextlib.contextmanager
def held(directory: pathlib.Path) -> Iterator[None]:
    """Creates a run's directory, and holds its lock, so that no other run can use it.

    The operating system releases the lock when the process ends for any reason. In a run of
    several processes the first one holds it; a file system without locks is used without one.

    Raises:
      TrainingError: another run holds the lock.
    """
    directory.mkdir(parents=True, exist_ok=True)
    taken = False
    with open(directory / ".lock", "a") as file:
        try:
            if distributed.is_first():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            taken = True
        except OSError:
            pass
        if distributed.anywhere(taken):
            raise TrainingError(f"{directory} is in use by another run")
        yield


class Interrupts:
    """A context that records SIGINT and SIGTERM instead of terminating.

    A second signal is not caught. Outside the main thread no signal is.

    Args:
      every: number of steps between two in which several processes agree on whether to stop.
      report: called with a message at the first signal.
    """

    def __init__(self, every: int, report: Callable[[str], None]):
        self._every, self._report = every, report
        self._noted = False
        self._before: dict = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def agreed(self, step: int) -> bool:
        """Whether to stop. Several processes synchronize on this in every `every`-th step."""
        if jax.process_count() == 1:
            return self._noted
        return step % self._every == 0 and distributed.anywhere(self._noted)

    def _note(self, *_):
        self._noted = True
        self.__exit__()
        self._report("stopping, with a checkpoint; another Ctrl-C stops without one")
