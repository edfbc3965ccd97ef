"""Runs untrusted programs in a sandbox.

Each program runs in its own process and session, in an empty directory, with an empty environment,
under limits of time, memory, file sizes and processes, and under a filter of system calls
(`jail.py`). None of the allowed calls opens a file for writing, removes one, creates a process or a
socket, or signals another process. If the kernel lets this user create namespaces, the process also
gets its own users, processes, mounts, network and shared memory. It can read the files that this
user can read, but has no way to pass them on: of the pipe on which it reports its end, at most a
line is read, and only words that are known beforehand are passed on.

The sandbox prevents harm, not cheating: a program written to cheat could look for the token that
says that it passed.
"""

import builtins
import contextlib
import functools
import json
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

_JAIL = Path(__file__).with_name("jail.py")
_UNSHARE = (
    "unshare", "--map-root-user", "--pid", "--mount", "--net", "--ipc", "--fork", "--kill-child",
    # The first process of a PID namespace ignores the signal of the CPU limit, so let a shell be
    # the first.
    "/bin/sh", "-c", '"$@"; exit $?', "sh",
)  # fmt: skip
_LONGEST = 64  # bytes of an answer, which is a token or the name of an exception
_EXCEPTIONS = {
    name
    for name, found in vars(builtins).items()
    if isinstance(found, type) and issubclass(found, BaseException)
}
_CHECK = "import collections, math, re, typing\nassert math.gcd(4, 6) == 2"


class Limits(NamedTuple):
    """Resource limits of a program.

    Attributes:
      seconds: CPU time, including the start of Python.
      memory: address space in bytes.
    """

    seconds: float = 5.0
    memory: int = 1 << 29

    @property
    def clock_seconds(self) -> float:
        """Wall-clock limit in seconds.

        It exceeds the CPU time, because a busy machine runs a program only part of the time.
        """
        return 3 * self.seconds


class Verdict(NamedTuple):
    """How a program ended.

    Attributes:
      passed: whether it ran to its end.
      reason: "passed", "time", "forbidden" (a system call that is not allowed), "output" (it wrote
        to the pipe on which its end is reported), "crash", the name of an uncaught built-in
        exception, or "exception" for any other.
    """

    passed: bool
    reason: str


def run(program: str, limits: Limits | None = None) -> Verdict:
    """Runs a program; it passes if it reaches its end without an exception.

    Raises:
      OSError: this system cannot confine a process; nothing was run.
    """
    check()
    return _run(program, limits or Limits())


@functools.cache
def namespaces() -> bool:
    """Whether this user may create namespaces."""
    if shutil.which(_UNSHARE[0]) is None:
        return False
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, timeout=30, check=False)
    return tried.returncode == 0


@functools.cache
def check() -> None:
    """Tests the sandbox with a harmless program and with one that it must stop.

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
        deadline = time.monotonic() + limits.clock_seconds
        try:
            answer = _exchange(process, json.dumps(request).encode(), deadline)
            if len(answer) <= _LONGEST:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return Verdict(False, "time")
        finally:
            _kill(process)
    return _verdict(answer.decode("ascii", "replace"), token, process.returncode)


def _exchange(process: subprocess.Popen, request: bytes, deadline: float) -> bytes:
    """Sends a request and returns the answer, up to the first byte that is too many.

    Raises:
      TimeoutExpired: the answer was not complete in time.
    """
    assert process.stdout is not None  # it is a pipe
    threading.Thread(target=_send, args=(process.stdin, request), daemon=True).start()
    answer = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while len(answer) <= _LONGEST:
            if not ready.select(max(0.0, deadline - time.monotonic())):
                raise subprocess.TimeoutExpired(process.args, deadline)
            part = os.read(process.stdout.fileno(), _LONGEST + 1 - len(answer))
            if not part:
                break
            answer += part
    return answer


def _send(pipe: BinaryIO, request: bytes) -> None:
    with contextlib.suppress(OSError, ValueError), pipe:  # a killed process does not read
        pipe.write(request)


def _kill(process: subprocess.Popen) -> None:
    """Kills whatever is left of the session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


def _verdict(answer: str, token: str, code: int) -> Verdict:
    if len(answer) > _LONGEST:
        return Verdict(False, "output")
    if answer == token and code == 0:
        return Verdict(True, "passed")
    # A shell reports a signal as 128 plus its number.
    ended = -code if code < 0 else code - 128
    if ended == signal.SIGSYS:
        return Verdict(False, "forbidden")
    if ended in (signal.SIGXCPU, signal.SIGKILL):
        return Verdict(False, "time")
    if answer in _EXCEPTIONS:
        return Verdict(False, answer)
    return Verdict(False, "exception" if answer.isidentifier() else "crash")
