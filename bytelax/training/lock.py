"""One run in a directory at a time."""

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
    """Keeps other runs out of the directory of this one.

    The system gives the lock back when this process ends, however it ends. Of several processes
    of a run the first one has it.

    Args:
      directory: of the run, made if it is not there.
      report: told where the file system has no locks, and the run goes on without one.

    Raises:
      TrainingError: another run has it; the message names its process and machine.
      OSError: the directory cannot be made or written.
    """
    owner = None
    with contextlib.ExitStack() as stack:
        if distributed.is_first():
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
    """Who has the lock already; None now that this process has it."""
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
