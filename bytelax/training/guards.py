"""The lock on a run's directory, and its signal handlers."""

import contextlib
import fcntl
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import jax

from bytelax.pods import distributed
from bytelax.training.train_state import TrainingError

FILE = ".lock"


@contextlib.contextmanager
def held(directory: pathlib.Path, *, report: Callable[[str], None] = print) -> Iterator[None]:
    """Holds the lock of a run's directory, so that no other run can use the directory.

    The operating system releases the lock when the process ends for any reason. In a run of
    several processes the first one holds the lock.

    Args:
      directory: directory of the run; it is created if it does not exist.
      report: called with a message if the file system does not support locks. The run then
        continues without one.

    Raises:
      TrainingError: another run holds the lock; the message names its process and machine. Or
        the directory is a file.
      OSError: the directory cannot be created or written.
    """
    owner = None
    with contextlib.ExitStack() as stack:
        if distributed.is_first():
            if directory.is_file():
                raise TrainingError(f"{directory} is a file; give a directory for the run")
            directory.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(directory / FILE, "a+"))
            owner = _take(file, report)
        if distributed.anywhere(owner is not None):
            raise TrainingError(
                f"{directory} is in use by {owner or 'another run'}: wait for it, or choose "
                "another directory"
            )
        yield


def _take(file, report):
    """Takes the lock. Returns who holds it already, or None if this process now holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        return file.read(200).strip() or "another run"
    except OSError as error:
        report(f"{file.name} cannot be locked, let no other run write there: {error}")
        return None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    return None


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
