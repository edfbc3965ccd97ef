"""What `experiments/pods.py` reads out of compiled programs, and how it looks for limits."""

import dataclasses

import pod_cases
import pods
import pytest
from pod_cases import Case

from bytelax.sharding import MeshConfig

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
    assert need["rest"] == {"all-reduce": 9 * 3 + 2 + 25 * 2 + 1, "all-gather": 1}
    assert pods.is_lean(CASE, need)
    assert not pods.is_lean(CASE, {"draft": {"all-reduce": 30}})
    assert not pods.is_lean(CASE, {"rest": {"all-to-all": 1}})
    data = dataclasses.replace(CASE, mesh=MeshConfig(data=16))
    assert pods.is_lean(data, {}) and not pods.is_lean(data, {"rest": {"all-reduce": 1}})


@pytest.mark.parametrize(("room", "found"), [(100.7, 100), (9.0, 8), (7.0, 4), (3.0, None)])
def test_the_largest_batch_is_found(monkeypatch, room, found):
    asked = []
    pod = pod_cases.Pod("tpu", "v5e:4x4", room)
    monkeypatch.setitem(pod_cases.PODS, CASE.pod, pod)

    def measured(case):
        asked.append(case.rows)
        fits = case.rows < room
        return {"fits": fits} | ({"bytes_a_device": case.rows} if fits else {})

    assert pods.largest(CASE, "rows", 1, measured) == found
    assert len(asked) <= 5


def test_every_case_fills_its_pod():
    devices = {"v5e 4x4": 16, "v5e 16x16": 256, "v5p 8x8x8": 512, "8 x H200": 8}
    for full in (False, True):
        for case in pod_cases.cases(full):
            assert case.mesh.size == devices[case.pod]
    assert {case.pod for case in pod_cases.cases(True)} == set(devices)
