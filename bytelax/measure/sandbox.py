"""Programs that nobody has read, run where they can do no harm.

Each runs in a process of its own, in an empty directory, without environment, in its own session,
under limits of time, memory, file sizes and processes, and under a list of the system calls that it
may make (`jail.py`): none opens a file to write, removes one, makes a process or a socket, or
signals another process. Where the kernel lets this user have them, it also gets its own users,
processes, mounts, network and shared memory. What it may do is read files that this user can read;
it has no way to tell anyone.

The limits are on harm. A program made to cheat could look for the token that says it passed.
"""

import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

_JAIL = Path(__file__).with_name("jail.py")
_UNSHARE = (
    "unshare", "--map-root-user", "--pid", "--mount", "--net", "--ipc", "--fork", "--kill-child",
    # The first process of a namespace is deaf to the limit of time, so a shell is the first.
    "/bin/sh", "-c", '"$@"; exit $?', "sh",
)  # fmt: skip
_CHECK = "import collections, math, re, typing\nassert math.gcd(4, 6) == 2"


class Limits(NamedTuple):
    """What a program may use.

    Attributes:
      seconds: of the processor, starting Python included.
      memory: bytes of address space.
    """

    seconds: float = 5.0
    memory: int = 1 << 29

    @property
    def clock_seconds(self) -> float:
        """When what waits is ended; a busy machine gives a program a part of its time."""
        return 3 * self.seconds


class Verdict(NamedTuple):
    """How a program ended.

    Attributes:
      passed: it ran to its end.
      reason: "passed", "time", "forbidden" (a system call that is not on the list), "crash", or the
        name of the exception that nothing caught.
    """

    passed: bool
    reason: str


def run(program: str, limits: Limits | None = None) -> Verdict:
    """Runs a program; it passes if nothing is raised before its end.

    Raises:
      OSError: this system cannot confine a process; nothing was run.
    """
    check()
    return _run(program, limits or Limits())


@functools.cache
def namespaces() -> bool:
    """Whether this user may have namespaces of its own."""
    if shutil.which(_UNSHARE[0]) is None:
        return False
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, timeout=30, check=False)
    return tried.returncode == 0


@functools.cache
def check() -> None:
    """Tries the list of calls on a harmless program and on one that it must stop.

    Raises:
      OSError: this system cannot confine a process.
    """
    allowed = _run(_CHECK, Limits(seconds=60.0))
    stopped = _run("import os\nos.fork()", Limits(seconds=60.0))
    if not allowed.passed or stopped.reason != "forbidden":
        raise OSError(
            "generated code cannot be confined on this system, so it is not run: a harmless "
            f"program: {allowed.reason}, a fork: {stopped.reason}"
        )


def _run(program: str, limits: Limits) -> Verdict:
    token = secrets.token_hex(16)
    request = {
        "program": program,
        "token": token,
        "seconds": max(1, round(limits.seconds)),
        "memory": limits.memory,
    }
    command = [sys.executable, "-I", "-S", "-B", str(_JAIL)]
    with tempfile.TemporaryDirectory(prefix="bytelax-") as scratch:
        process = subprocess.Popen(
            [*_UNSHARE, *command] if namespaces() else command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd=scratch, env={"PYTHONHASHSEED": "0"}, start_new_session=True,
        )  # fmt: skip
        try:
            answer, _ = process.communicate(json.dumps(request).encode(), limits.clock_seconds)
        except subprocess.TimeoutExpired:
            return Verdict(False, "time")
        finally:
            _kill(process)
    return _verdict(answer.decode("ascii", "replace"), token, process.returncode)


def _kill(process: subprocess.Popen) -> None:
    """All that is left of the session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def _verdict(answer: str, token: str, code: int) -> Verdict:
    if answer == token and code == 0:
        return Verdict(True, "passed")
    # The shell tells of a signal in this way.
    ended = -code if code < 0 else code - 128
    if ended == signal.SIGSYS:
        return Verdict(False, "forbidden")
    if ended in (signal.SIGXCPU, signal.SIGKILL):
        return Verdict(False, "time")
    return Verdict(False, answer if answer.isidentifier() else "crash")
