"""Several processes train as one does, and go on from what any number of others has saved."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from bytelax import checkpoints, cli, loading
from bytelax.pods import distributed
from bytelax.pods.distributed import Processes
from bytelax.training import runs
from tests.helpers import models_for_tests, tiny_runs

STEPS = 12


def training(out, axes, pace=0.0):
    flags = [word for axis, size in axes.items() for word in (f"--{axis}", str(size))]
    return [sys.executable, tiny_runs.__file__, str(out), "--pace", str(pace), *flags]


def start(command, count, *, devices):
    """Several processes of one command, over the loopback interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = []
    for index in range(count):
        environment = os.environ | {
            "JAX_NUM_CPU_DEVICES": str(devices),
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_COORDINATOR_BIND_ADDRESS": address,
            "JAX_NUM_PROCESSES": str(count),
            "JAX_PROCESS_ID": str(index),
        }
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)
        )
    return started


@contextlib.contextmanager
def running(*args, **options):
    processes = start(*args, **options)
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def finish(processes):
    """What each has printed and told; none may fail."""
    said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return said


def own_lines(stdout):
    """Without those of the library that the processes talk by, whose threads mix their lines."""
    foreign = re.compile(r".*(Gloo|connected|peer ranks).*|[\d\s]*")
    return [line for line in stdout.splitlines() if not foreign.fullmatch(line)]


def wait_for(path, processes):
    deadline = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < deadline
        for process in processes:
            assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def examples(out, count):
    """For each step: its first example, and what each example of it sums up to, in any process."""
    steps = {}
    for index in range(count):
        path = out / f"examples-{index}.jsonl"
        for line in map(json.loads, path.read_text().splitlines()):
            steps.setdefault(line["first"], {}).update(line["sums"])
        path.unlink()
    return steps


def expected(first_step):
    found = {}
    for step, batch in enumerate(tiny_runs.batches("train", first_step, end=STEPS), first_step):
        found[step * 8] = {str(step * 8 + row): int(ids.sum()) for row, ids in enumerate(batch)}
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return train(tmp_path_factory.mktemp("alone")).params


def train(out):
    objective = tiny_runs.NextByte(noise=0.1)
    return runs.train(tiny_runs.config(), objective, tiny_runs.batches, out, report=print)


def assert_close(left, right):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), left, right)


@pytest.mark.slow
def test_others_go_on_after_one_was_killed(alone, tmp_path):
    command = training(tmp_path, {"data": 2, "tensor": 2}, pace=0.3)
    with running(command, 2, devices=2) as processes:
        wait_for(tmp_path / "checkpoints" / "6", processes)
        processes[1].kill()
        processes[1].wait()
        time.sleep(1)
    read = examples(tmp_path, 2)
    read.pop(max(read))  # not every process came to read the last step
    assert read == {first: sums for first, sums in expected(0).items() if first in read}
    assert not (tmp_path / "checkpoints" / str(STEPS)).exists()
    kept = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    before = max(int(name) for name in kept if name.isdigit())  # one may be half-written

    with running(training(tmp_path, {"fsdp": 2, "tensor": 2}), 4, devices=1) as processes:
        told = [stderr for _, stderr in finish(processes)]
    assert f"going on from step {before}" in told[0]
    assert not any("step" in text for text in told[1:])  # the first one speaks for all
    assert examples(tmp_path, 4) == expected(before)
    assert_close(alone, loading.load(tmp_path / "model").params)
    steps = [
        json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert steps == sorted(steps) and steps.count(STEPS) == 2  # one of training, one validation


@pytest.mark.slow
def test_one_that_is_told_to_end_ends_all_and_loses_nothing(alone, tmp_path):
    with running(training(tmp_path, {"fsdp": 2}, pace=0.3), 2, devices=1) as processes:
        wait_for(tmp_path / "checkpoints" / "3", processes)
        processes[1].send_signal(signal.SIGTERM)
        (_, told), *_ = finish(processes)
    assert "run the same command again to go on" in told
    loading.load(tmp_path / "model")  # as it was then
    result = train(tmp_path)
    assert result.finished
    assert_close(alone, result.params)


@pytest.mark.slow
def test_processes_decode_together(tmp_path, capsys):
    small = models_for_tests.model(models_for_tests.PLAIN)
    checkpoints.write(tmp_path / "model", small.config, small.params, layout="orbax")
    command = ["generate", "--model", str(tmp_path / "model"), "one", "two", "three", "--json"]
    command += ["--method", "blt-s", "--max-new-bytes", "8"]
    assert cli.main(command) == 0
    wanted = json.loads(capsys.readouterr().out)
    command = [sys.executable, "-m", "bytelax.cli", *command, "--mesh", "data=2,tensor=2"]
    with running(command, 2, devices=2) as processes:
        (line,), silence = [own_lines(stdout) for stdout, _ in finish(processes)]
    assert silence == []
    written = [result["base64"] for result in json.loads(line)["results"]]
    assert written == [result["base64"] for result in wanted["results"]]
    alone = command[: command.index("--mesh")]
    with running(alone, 2, devices=1) as processes:  # they would all do the same
        told = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2]
    assert all("a mesh of 1 x 1 x 1 leaves some of the 2 devices out" in line for line in told)


READER = """
import sys, jax
from bytelax import checkpoints
from bytelax.pods import distributed
distributed.start()
_, params = checkpoints.read(sys.argv[1])
there = {device for leaf in jax.tree.leaves(params) for device in leaf.devices()}
assert there == {jax.local_devices()[0]}, there
total = sum(float(abs(leaf).sum()) for leaf in jax.tree.leaves(params))
index = jax.process_index()
print(index, total > 0, [distributed.anywhere(index == other) for other in (1, 2)])
"""


@pytest.mark.slow
def test_each_process_reads_a_model_of_its_own(tmp_path):
    """As the entropy model of a training is, the teacher and the draft model."""
    small = models_for_tests.model(models_for_tests.PLAIN)
    checkpoints.write(tmp_path / "model", small.config, small.params, layout="orbax")
    with running([sys.executable, "-c", READER, str(tmp_path / "model")], 2, devices=2) as started:
        printed = [own_lines(stdout) for stdout, _ in finish(started)]
    assert printed == [[f"{index} True [True, False]"] for index in range(2)]


SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
}
JAX = {"JAX_COORDINATOR_ADDRESS": "h:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
TOLD = {"coordinator_address": "h:1", "num_processes": 2, "process_id": 1}


@pytest.mark.parametrize(
    ("processes", "environment", "settings"),
    [
        (Processes(), {}, None),
        (Processes(), {"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        (Processes(), {"TPU_WORKER_HOSTNAMES": "a,b"}, {}),
        (Processes(), SLURM, {}),
        (Processes(), SLURM | {"SLURM_NTASKS": "1"}, None),
        (Processes(), JAX, TOLD),
        (Processes(), SLURM | JAX, TOLD),
        (Processes(process_id=0), JAX, TOLD | {"process_id": 0}),
        (Processes(coordinator="h:1", num_processes=2, process_id=1), {}, TOLD),
        (Processes(coordinator="auto"), {}, {}),
        (Processes(coordinator="auto", num_processes=4), {}, {"num_processes": 4}),
        (Processes(coordinator="h:1"), SLURM, {"coordinator_address": "h:1"}),
    ],
)
def test_the_environment_tells_of_the_processes(processes, environment, settings):
    assert distributed.settings(processes, environment) == settings


@pytest.mark.slow  # a call of it: ../test_wrong_input.py
@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        (["--coordinator", "h:1"], {}),
        (["--process-id", "2"], JAX),
        (["--process-id", "1"], {}),
        (["--coordinator", "h"], JAX),
        ([], JAX | {"JAX_PROCESS_ID": "x"}),
    ],
)
def test_half_of_it_is_an_error(flags, environment):
    command = [sys.executable, "-m", "bytelax.cli", "generate", "--model", "tiny", "x", *flags]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert ran.returncode == 2 and ran.stderr.count("\n") == 1, ran.stderr
    assert "process" in ran.stderr.lower()


def test_a_coordinator_without_a_port_is_told():
    with pytest.raises(ValueError, match="coordinator as HOST:PORT, not 'h'"):
        distributed.settings(Processes(coordinator="h"), {})


def test_a_coordinator_that_cannot_start_is_told(monkeypatch):
    def fail(**_):
        raise jax.errors.JaxRuntimeError("UNKNOWN: Failed to start RPC server")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    with pytest.raises(OSError, match=r"cannot start at h:1, is its port free\? UNKNOWN"):
        distributed.start(Processes(coordinator="h:1", num_processes=2, process_id=0))
