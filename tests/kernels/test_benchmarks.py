"""The benchmarks, and the study of kernels as far as a CPU takes it. Times mean nothing here."""

import functools

import jax
import pytest
from bytelax_kernels import timing
from bytelax_kernels.append_attention import benchmark as append_benchmark
from bytelax_kernels.append_attention import reference as append_reference
from bytelax_kernels.cross_attention import benchmark as cross_benchmark
from bytelax_kernels.cross_attention import reference as cross_reference
from bytelax_kernels.dense import benchmark as dense_benchmark
from bytelax_kernels.dense import reference
from bytelax_kernels.unmask import Rule
from bytelax_kernels.unmask import benchmark as unmask_benchmark
from bytelax_kernels.verify_attention import benchmark as attention_benchmark

from bytelax.targets.blt import BLTTarget
from experiments.studies import accelerator_kernels as study_of_kernels
from tests.helpers import models_for_tests as models
from tests.helpers.emulating import on_gpu
from tests.helpers.interpreting import on
from tests.helpers.marks import slow

ATTENTION = attention_benchmark.Case(2, 3, 2, 1, slots=72, dim=64, length=100)
CASES = {"ring": ATTENTION, "tree": ATTENTION._replace(length=60, tree=True)}
DENSE = dense_benchmark.Case(3, 64, 96, gated=True, onto=True)
CROSS = cross_benchmark.Case(batch=2, window=3, heads=4, slots=7, dim=16)
APPEND = append_benchmark.Case(2, 3, heads=4, kv_heads=2, slots=72, dim=16, length=100)
UNMASK = unmask_benchmark.Case(Rule("entropy", 1.0), drawn=True, batch=2, cells=4)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    for benchmark in (attention_benchmark, dense_benchmark, append_benchmark):
        monkeypatch.setattr(benchmark, "TURNED", 1 << 17)
    real = timing.seconds_of_step
    monkeypatch.setattr(
        timing, "seconds_of_step", lambda *args, repeats=2: real(*args, repeats=min(repeats, 2))
    )


@pytest.mark.slow
def test_times():
    per_second = timing.bandwidth(1000)
    rows = [attention_benchmark.times(case, per_second) for case in CASES.values()]
    rows.append(unmask_benchmark.times(UNMASK, per_second))
    with on_gpu():  # that of `dense` has no other run on a processor
        rows.append(dense_benchmark.times(DENSE, per_second))
    rows.append(append_benchmark.times(APPEND, per_second))
    rows.append(cross_benchmark.times(CROSS, per_second))
    for row in rows:
        assert set(row) == {"floor_us", "kernel_us", "xla_us", "loop_us"}
        assert all(time > 0 for time in row.values())


@pytest.mark.slow  # the check itself: below
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_is_checked(case):
    with on("gpu"):
        assert study_of_kernels.check_attention(case, kernel="gpu")["exact"]


def test_bits_that_hang_on_the_row_are_seen(monkeypatch):
    def attend(*inputs, implementation):
        out = attention_benchmark.attend(*inputs, implementation="xla")
        return out.at[:, 0].multiply(1.01) if implementation == "gpu" else out

    monkeypatch.setattr(study_of_kernels, "attend", attend)
    row = study_of_kernels.check_attention(ATTENTION, kernel="gpu")
    assert row["error"] < 1e-2 and not row["exact"]


def test_unmask_is_checked():
    with on("gpu"):
        row = study_of_kernels.check_unmask(UNMASK, kernel="gpu")
    assert row["exact"]


@pytest.mark.parametrize(
    "kernel, case",
    [
        slow("dense", DENSE),
        slow("append_attention", APPEND),
        ("cross_attention", CROSS),
    ],
)
def test_fused_layers_are_checked(kernel, case, monkeypatch):
    """Also an error is seen: the kernel of another reference."""
    _, check = study_of_kernels.KERNELS[kernel]
    with on_gpu():
        assert check(case, kernel="gpu")["exact"]
        monkeypatch.setattr(reference, "normalized", lambda x, scale, *, eps: x * scale)
        monkeypatch.setattr(append_reference, "slots_of", lambda positions, slots: positions % 7)
        monkeypatch.setattr(cross_reference.jax.nn, "softmax", lambda x, axis: x)
    with on_gpu():
        assert not check(case, kernel="gpu")["exact"]


def test_what_gpus_alone_have_is_measured_there():
    kernels = [
        {row.get("kernel") for row in study_of_kernels.settings(platform)}
        for platform in ("tpu", "gpu")
    ]
    assert kernels[1] - kernels[0] == {"dense", "append_attention", "cross_attention"}


@pytest.mark.slow
def test_a_verify_pass_is_timed(monkeypatch):
    """Also that of one byte runs the global model."""
    ran = []
    commit = BLTTarget.commit

    def watched(self, trial, count):
        jax.debug.callback(lambda each: ran.append(each.all()), trial.ran_global)
        return commit(self, trial, count)

    monkeypatch.setattr(BLTTarget, "commit", watched)
    assert min(study_of_kernels.verify_pass(2, 41, shape=models.BASE).values()) > 0
    assert ran and all(ran)


@pytest.mark.slow
def test_measure(monkeypatch):
    monkeypatch.setattr(attention_benchmark, "CASES", CASES)
    monkeypatch.setattr(study_of_kernels, "bandwidth", lambda: 1e9)
    setting = {"kernel": "verify_attention", "case": "ring"}
    with on("gpu"):
        check, time = (
            study_of_kernels.measure({"step": step, **setting}, kernel="gpu")
            for step in ("check", "time")
        )
    assert check["exact"] and time["kernel_us"] > 0


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_timed_on_a_gpu_can_be_lowered_for_it(case):
    inputs = attention_benchmark.example(case)
    for name in ("gpu", "xla"):
        attend = jax.jit(functools.partial(attention_benchmark.attend, implementation=name))
        attend.trace(*inputs).lower(lowering_platforms=("cuda",))
