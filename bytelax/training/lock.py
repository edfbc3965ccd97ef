"""A file lock that keeps two training runs out of the same directory."""

import contextlib
import fcntl
import os
import pathlib
import socket
from collections.abc import Callable, Iterator

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
