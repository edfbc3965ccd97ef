"""Generated code does no harm, and whatever it should not do is a fail."""

import os
import resource
import subprocess
import sys
import time

import pytest

from bytelax.measure import jail, sandbox
from bytelax.measure.sandbox import Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="filters of system calls")
QUICK = Limits(seconds=1.0, memory=1 << 28)


@pytest.fixture(params=["own namespaces", "filter alone"])
def anywhere(request, monkeypatch):
    """Where the kernel gives namespaces, and where it does not."""
    alone = request.param == "filter alone"
    if not alone and not sandbox.namespaces():
        pytest.skip("no namespaces for this user")
    if alone:
        monkeypatch.setattr(sandbox, "namespaces", lambda: False)


def test_ordinary_programs_pass(anywhere):
    program = """
import bisect, collections, copy, datetime, decimal, fractions, functools, hashlib, heapq
import itertools, json, math, operator, random, re, statistics, string, sys, time, typing
print("a line", flush=True)
sys.stderr.write("another")
assert sorted(random.sample(range(9), 9)) == list(range(9))
assert hashlib.md5(b"").hexdigest().startswith("d41d8c")
time.sleep(0.01)
datetime.datetime.now(), len(bytearray(10**7)), sys.stdin.read()
if __name__ == "__main__":
    assert re.sub("a+", "b", "caat") == "cbt"
"""
    assert sandbox.run(program) == (True, "passed")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 == 2", "AssertionError"),
        ("def f(:", "SyntaxError"),
        ("def f():\n    f()\nf()", "RecursionError"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("import os\nos._exit(0)", "crash"),
        ("import ctypes\nctypes.string_at(0)", "crash"),
        ("import numpy", "ModuleNotFoundError"),
    ],
)
def test_what_does_not_reach_its_end_fails(program, reason):
    assert sandbox.run(program) == (False, reason)


@pytest.mark.parametrize(
    "act",
    [
        "os.fork()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.execv('/bin/true', ['true'])",
        "subprocess.run(['true'])",
        "threading.Thread(target=print).start()",
        "socket.socket()",
        "socket.create_connection(('127.0.0.1', PORT), 1)",
        "os.remove(VICTIM)",
        "os.rename(VICTIM, VICTIM + '.moved')",
        "os.truncate(VICTIM, 0)",
        "os.chmod(VICTIM, 0)",
        "os.symlink(VICTIM, 'link')",
        "open(VICTIM, 'w')",
        "open(VICTIM, 'a')",
        "open(VICTIM, 'r+')",
        "os.open(VICTIM, os.O_RDONLY | os.O_TRUNC)",
        "open('scratch', 'x')",
        "os.mkdir('folder')",
        "shutil.rmtree(os.path.dirname(VICTIM))",
        "os.kill(PARENT, 9)",
        "os.killpg(0, 9)",
        "fcntl.fcntl(0, fcntl.F_SETOWN, PARENT)",
        "resource.setrlimit(resource.RLIMIT_CPU, (9, 9))",
        "os.setpriority(os.PRIO_PROCESS, PARENT, 19)",
        "os.memfd_create('code')",
    ],
)
def test_harm_is_stopped_and_cannot_be_survived(act, anywhere, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("whole")
    harmless, program = (
        f"""
import fcntl, os, resource, shutil, socket, subprocess, threading
VICTIM, PARENT, PORT = {str(victim)!r}, {os.getpid()}, 9
try:
    {tried}
except BaseException:
    pass
"""
        for tried in ("open(VICTIM)", act)
    )
    assert sandbox.run(harmless, Limits(seconds=20.0)).passed
    mode = victim.stat().st_mode
    assert sandbox.run(program, Limits(seconds=20.0)) == (False, "forbidden")
    assert victim.read_text() == "whole" and victim.stat().st_mode == mode
    assert os.listdir(tmp_path) == ["victim"]


@pytest.mark.parametrize(
    "act",
    [
        pytest.param("while True: pass", marks=pytest.mark.slow),
        pytest.param("import time\ntime.sleep(60)", marks=pytest.mark.slow),
        "sum(range(10**12))",
    ],
)
def test_loops_end(act, anywhere):
    begin = time.monotonic()
    caught = "\n    ".join(["try:", *act.splitlines()])
    verdict = sandbox.run(f"{caught}\nexcept BaseException: pass", QUICK)
    assert verdict == (False, "time")
    assert time.monotonic() - begin < 15


FLOODS = {
    "without end": "while True:\n    for n in range(3, 10):\n        write(n, b'x' * (1 << 20))",
    "a byte too much": "for n in range(3, 10): write(n, b'x' * 65)\ntime.sleep(60)",
    "in small pieces": "while True:\n    for n in range(3, 10): write(n, b'x')",
    "as a name": "raise type('x' * (1 << 27), (Exception,), {})",
}


@pytest.mark.parametrize("act", FLOODS.values(), ids=FLOODS)
def test_what_a_program_writes_is_not_kept(act, anywhere):
    """One that wrote to the pipe of its answer filled this process's memory, 5 GB in 9 seconds."""
    program = f"""
import os, time
def write(n, content):
    try:
        os.write(n, content)
    except OSError:
        pass
{act}
"""
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    verdict = sandbox.run(program, Limits(seconds=5.0, memory=1 << 30))
    assert verdict == (False, "output")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("class passed(Exception): pass\nraise passed", "exception"),
        ("class Told(Exception): pass\nraise Told", "exception"),
        ("import os\nfor n in range(3, 10):\n    try: os.write(n, b'told')\n    except: pass\n"
         "os._exit(0)", "exception"),
    ],
)  # fmt: skip
def test_reasons_are_known_words(program, reason):
    assert sandbox.run(program) == (False, reason)


def test_a_program_that_closes_its_answer_and_waits_ends(anywhere):
    closed = """
import os, time
for n in range(3, 10):
    try:
        os.close(n)
    except OSError:
        pass
time.sleep(60)
"""
    assert sandbox.run(closed, QUICK) == (False, "time")


def test_memory_ends(anywhere):
    assert sandbox.run("x = bytearray(2 ** 29)", QUICK) == (False, "MemoryError")
    hoard = "x = []\nwhile True: x.append(bytearray(2 ** 20))"
    assert sandbox.run(hoard, Limits(seconds=20.0, memory=1 << 28)).reason == "MemoryError"


def test_nothing_is_left_running(anywhere, monkeypatch):
    """Also of what ignores every signal that it may ignore."""
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **how: started.append(popen(*args, **how)) or started[-1]
    )
    deaf = "import signal\nfor s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\n"
    assert not sandbox.run(f"{deaf}while True: pass", QUICK).passed
    with pytest.raises(ProcessLookupError):
        for _ in range(100):  # until the system has buried what was killed
            os.killpg(started[-1].pid, 0)
            time.sleep(0.1)


def test_nothing_of_the_environment_is_there(monkeypatch):
    monkeypatch.setenv("SECRET", "word")
    assert sandbox.run("import os\nassert 'SECRET' not in os.environ").passed
    assert sandbox.run("import os\nassert os.listdir('.') == []").passed


def test_a_system_that_cannot_confine_runs_nothing(monkeypatch):
    monkeypatch.setattr(sandbox, "_JAIL", sandbox._JAIL.with_name("nowhere.py"))
    sandbox.check.cache_clear()
    with pytest.raises(OSError, match="generated code cannot be confined"):
        sandbox.run("pass")
    sandbox.check.cache_clear()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_jumps_of_the_filter_stay_inside(machine):
    made = jail.instructions(machine)
    for at, (code, if_true, if_false, _) in enumerate(made):
        if code & 0x07 == 0x05:
            assert at + 1 + max(if_true, if_false) < len(made)
    assert made[-1] == (jail._RETURN, 0, 0, jail._KILL)
    assert len(made) < 4096
