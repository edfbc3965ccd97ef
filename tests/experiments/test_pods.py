"""What `studies/compile_pods.py` reads out of compiled programs, and how it looks for limits."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from bytelax.pods import sharding
from bytelax.pods.sharding import MeshConfig
from experiments.harness import pod_programs as programs
from experiments.harness import pods as cases
from experiments.harness.pods import Case
from experiments.studies import compile_pods as pods

CASE = Case("v5e 4x4", "1B", "blt-s", MeshConfig(data=4, tensor=4), rows=4, context=1024)
TEXT = """
  %a = f32[2]{0} all-reduce(%x), metadata={op_name="jit(f)/draft/while/psum"}
  %A = f32[2]{0} all-reduce(%x), metadata={op_name="jit(f)/draft/while/psum"}
  %b = (bf16[2]{0}, bf16[4]{0}) all-reduce-start(%x, %y), metadata={op_name="jit(f)/psum"}
  %c = bf16[2]{0} all-reduce-done(%b), metadata={op_name="jit(f)/psum"}
  %d = bf16[2]{0} fusion(%all-reduce), calls=%g, metadata={op_name="jit(f)/draft/add"}
  ROOT %e = bf16[8]{0} all-gather(%d), dimensions={0}
"""


def test_collectives_are_counted_by_where_they_stand():
    found = pods.collectives(TEXT)
    assert found == {"draft": {"all-reduce": 1}, "rest": {"all-gather": 1, "all-reduce": 1}}


def test_only_what_is_needed_is_lean():
    need = pods.needed(CASE)
    assert need["draft"] == {"all-reduce": 9 * 3 + 2, "all-gather": 1}
    assert need["rest"] == {"all-reduce": 9 * 3 + 2 + 25 * 2 + 1 + 2, "all-gather": 1}

    def is_lean(asked, said, case=CASE):
        return pods.is_lean(case, {"asked": asked, "collectives": said})

    assert is_lean(need, need) and is_lean(need, {})
    assert not is_lean({"draft": {"all-reduce": 30}}, {})
    assert not is_lean({"rest": {"all-to-all": 1}}, {})
    assert not is_lean({}, {"draft": {"all-reduce": 1}})  # XLA has added it
    data = dataclasses.replace(CASE, mesh=MeshConfig(data=16))
    assert is_lean({}, {}, data) and not is_lean({"rest": {"all-reduce": 1}}, {}, data)


def test_no_device_may_hold_a_whole_table_of_hashes():
    train = dataclasses.replace(CASE, what=cases.TRAIN)
    assert pods.holds_whole_table(train, "%a = bf16[3000012,1024]{1,0} scatter(%b)")
    assert not pods.holds_whole_table(train, "%a = bf16[3000012,64]{1,0} scatter(%b)")
    assert not pods.is_lean(train, {"whole_table": True})
    assert pods.is_lean(train, {"whole_table": False})


def test_what_is_asked_for_twice_under_one_name_counts_twice():
    mesh = sharding.make_mesh(MeshConfig(tensor=2))

    def part(x):
        with jax.named_scope("draft"):
            x = jax.lax.fori_loop(0, 3, lambda _, x: jax.lax.psum(x, "tensor"), x)
        for _ in range(2):
            x = jax.lax.psum(x, "tensor")
        return jax.lax.all_gather(x, "tensor", tiled=True)

    spec = PartitionSpec("tensor")
    spread = jax.shard_map(part, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    traced = jax.jit(spread).trace(jax.ShapeDtypeStruct((4,), jnp.float32))
    assert pods.asked(traced.jaxpr) == {
        "draft": {"all-reduce": 1},
        "rest": {"all-gather": 1, "all-reduce": 2},
    }


@pytest.mark.slow
@pytest.mark.parametrize("what", cases.METHODS)
def test_rounds_ask_for_what_they_need(what):
    case = Case("8 x H200", "1B", what, MeshConfig(data=2, tensor=4), 1, 1024, layers=1)
    program, args = programs.decoding_round(case, sharding.make_mesh(case.mesh))
    assert pods.asked(program.trace(*args).jaxpr) == pods.needed(case)


def test_seconds_are_what_xla_counts_over_the_peaks():
    cost = {"flops": 197e9, "bytes accessed": 819e6, "optimal_seconds": -7.0}
    found = pods.seconds_at_peak(cost, cases.PODS["v5e 4x4"])
    assert found == pytest.approx({"flops": 1e-3, "bytes accessed": 1e-3})
    assert pods.seconds_at_peak({"flops": -1.0}, cases.PODS["8 x H200"]) == {}


def test_measure_compiles_each_case_once(monkeypatch):
    compiled = []

    def compile_case(case):
        compiled.append(case.name)
        row = {"fits": True, "bytes_a_device": 2**30, "arguments": 2**29, "state": 2**28}
        return row | {"asked": {}, "collectives": {}, "whole_table": False}

    monkeypatch.setattr(pods, "compile_case", compile_case)
    case, known = cases.cases(full=True)[1], {}
    row = pods.measure(case, known, limits=False)
    assert (row["gib"], row["arguments_gib"], row["lean"]) == (1, 0.5, True)
    assert pods.measure(case, known, limits=False) == row and compiled == [case.name]
    monkeypatch.setattr(pods, "largest", lambda case, field, step, measured: 70)
    assert pods.measure(case, known, limits=True)["most_bytes"] == 70


def largest(monkeypatch, held, field="rows", *, limit=100.0, state=0.0):
    """What is found where a program of n rows or bytes holds `held(n)`; and what was compiled."""
    asked = []
    pod = dataclasses.replace(cases.PODS[CASE.pod], memory=limit)
    monkeypatch.setitem(cases.PODS, CASE.pod, pod)

    def measured(case):
        asked.append(getattr(case, field))
        size = held(asked[-1])
        return (
            {"fits": False}
            if size >= limit
            else {"fits": True, "bytes_a_device": size, "state": state}
        )

    found = pods.largest(CASE, field, 1, measured)
    assert found is None or held(found) < limit
    return found, asked


def test_the_largest_batch_is_found(monkeypatch):
    # 4 rows are known to fit. Two programs where memory is what the state and the line say, three
    # where it is less, more where it is more.
    assert largest(monkeypatch, lambda n: 59.5 + n, state=59.5) == (40, [4, 40])
    assert largest(monkeypatch, lambda n: 59.5 + n) == (40, [4, 6, 40])
    found, asked = largest(monkeypatch, lambda n: 1.9 * n + n * n / 100)
    assert 8 * 43 <= 9 * found <= 9 * 43 and len(asked) <= 7
    assert largest(monkeypatch, lambda n: 95.5 + n) == (4, [4])
    assert largest(monkeypatch, lambda n: 100 + n) == (None, [4])


def test_no_context_is_longer_than_a_model_reads(monkeypatch):
    found, asked = largest(monkeypatch, lambda n: 2 * n, "context", limit=1e6)
    assert found == CASE.config().max_bytes and len(asked) == 2


def test_every_case_fills_its_pod():
    devices = {"v5e 4x4": 16, "v5e 16x16": 256, "v5p 8x8x8": 512, "8 x H200": 8}
    for full in (False, True):
        for case in cases.cases(full):
            assert case.mesh.size == devices[case.pod]
    assert {case.pod for case in cases.cases(True)} == set(devices)
