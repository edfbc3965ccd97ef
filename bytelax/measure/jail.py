"""Runs one untrusted program, under resource limits and a filter of system calls (seccomp).

    python -I -S -B jail.py <request.json

A script that uses the standard library only. `sandbox.py` starts it; nothing imports it. The filter
allows few system calls: a process may read files, allocate memory, read clocks, and write to what
it holds open. Any other call (to write or delete a file, open a socket, fork, or signal another
process) kills it at once, so that it cannot go on as if nothing had happened.
"""

import ctypes
import json
import os
import platform
import resource
import struct
import sys

# Audit architecture and allowed system calls of each machine.
_X86_64 = (
    0xC000003E,
    {
        "plain": (
            0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 23, 24, 25, 28, 32,
            35, 36, 37, 38, 39, 60, 63, 79, 89, 96, 98, 99, 100, 102, 104, 107, 108, 110, 131,
            158, 186, 201, 202, 204, 213, 217, 218, 219, 228, 229, 230, 231, 232, 233, 262, 267,
            269, 270, 271, 273, 281, 291, 318, 324, 332, 334, 439,
        ),
        "open": 2, "openat": 257, "fcntl": 72, "ioctl": 16, "prlimit64": 302,
    },
)  # fmt: skip
_AARCH64 = (
    0xC00000B7,
    {
        "plain": (
            17, 20, 21, 22, 23, 48, 57, 61, 62, 63, 64, 65, 66, 67, 72, 73, 78, 79, 80, 93, 94,
            96, 98, 99, 101, 102, 103, 113, 114, 115, 123, 124, 128, 132, 134, 135, 139, 153, 160,
            165, 169, 172, 173, 174, 175, 176, 177, 178, 179, 214, 215, 216, 222, 226, 233, 278,
            283, 291, 293, 439,
        ),
        "openat": 56, "fcntl": 25, "ioctl": 29, "prlimit64": 261,
    },
)  # fmt: skip
_CALLS: dict[str, tuple[int, dict]] = {"x86_64": _X86_64, "aarch64": _AARCH64}

_WRITING = 0o3 | 0o100 | 0o1000  # flags of open: write, read and write, create, truncate
_IOCTLS = (0x5401, 0x5413, 0x5451)  # TCGETS (is it a terminal), TIOCGWINSZ (its size), FIOCLEX
_LAST_FCNTL = 3  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL; later commands can send signals

# Constants of linux/filter.h, linux/seccomp.h and linux/prctl.h.
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_KILL, _ALLOW = 0x80000000, 0x7FFF0000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _SECCOMP_FILTER = 38, 22, 2


def _argument(index, *, high=False):
    """Loads one half of a call's argument; the machines above are little-endian."""
    return (_LOAD, 0, 0, 16 + 8 * index + 4 * high)


def instructions(machine):
    """Returns the filter as a list of (code, jump if true, jump if false, k)."""
    audit, calls = _CALLS[machine]
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]

    def when(call, *checks):
        # Each check kills the process or falls through to the next one.
        body = [*checks, (_RETURN, 0, 0, _ALLOW)]
        program.extend([(_EQUAL, 0, len(body), call), *body])

    for call in calls["plain"]:
        when(call)
    kill = (_RETURN, 0, 0, _KILL)
    for name, place in (("open", 1), ("openat", 2)):
        if name in calls:
            when(calls[name], _argument(place), (_ANY_BIT, 0, 1, _WRITING), kill)
    when(calls["fcntl"], _argument(1), (_GREATER, 0, 1, _LAST_FCNTL), kill)
    known = [(_EQUAL, len(_IOCTLS) - i, 0, k) for i, k in enumerate(_IOCTLS)]
    when(calls["ioctl"], _argument(1), *known, kill)
    unchanged = [_argument(2), (_EQUAL, 1, 0, 0), kill]
    when(calls["prlimit64"], *unchanged, _argument(2, high=True), *unchanged[1:])
    return [*program, kill]


def confine():
    """Restricts this process to the allowed system calls, for good.

    Raises:
      OSError: the kernel or the machine does not support such filters.
    """
    if sys.platform != "linux" or platform.machine() not in _CALLS:
        raise OSError(f"no filter of system calls for {sys.platform} on {platform.machine()}")
    made = instructions(platform.machine())
    code = b"".join(struct.pack("HBBI", *each) for each in made)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(made), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = [ctypes.c_ulong(n) for n in (1, 0, 0, 0)]
    if libc.prctl(_SET_NO_NEW_PRIVS, *numbers):
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    if libc.prctl(_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_FILTER), program, *numbers[1:3]):
        raise OSError(ctypes.get_errno(), "the filter of system calls is refused")


def limit(seconds, memory):
    """Limits CPU time (seconds) and memory (bytes), and forbids files, processes and core dumps."""
    limits = {"CPU": (seconds, seconds + 1), "AS": (memory, memory)}
    for name in ("FSIZE", "NPROC", "CORE"):
        limits[name] = (0, 0)
    for name, both in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), both)


def main():
    """Reads a request from standard input, runs its program, and writes how it ended."""
    request = json.load(sys.stdin)
    answer = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    limit(request["seconds"], request["memory"])
    confine()
    token = request.pop("token").encode()
    try:
        exec(compile(request["program"], "<program>", "exec"), {"__name__": "__main__"})
    except BaseException as error:  # SystemExit included: only running to the end passes
        os.write(answer, type(error).__name__.encode())
        os._exit(1)
    os.write(answer, token)
    os._exit(0)


if __name__ == "__main__":
    main()
