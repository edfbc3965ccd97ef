"""What a compiled program does is counted by its loops, and more than expected is told."""

import copy

import pytest

from experiments.studies import compile_rounds as run

NAMED = 'metadata={op_name="%s"}'
DRAFT, CHUNK = "jit(decode)/while/body/draft/while", "jit(decode)/while/body/while"
TRIPS = 'backend_config={"known_trip_count":{"n":"4"}}'
CYCLES = 'backend_config={"window_config":{"estimated_cycles":"%d"}}'
PROGRAM = f"""\
HloModule jit_decode

%search (p: (s32[])) -> (s32[]) {{
  %p = (s32[]) parameter(0)
  ROOT %step = (s32[]) fusion(%p), kind=kLoop, calls=%f
}}

%short (p: s32[]) -> s32[] {{
  ROOT %p = s32[] parameter(0)
}}

%long (p: s32[]) -> s32[] {{
  %p = s32[] parameter(0)
  ROOT %work = s32[] add(%p, %p)
}}

%draft (p: (s32[], bf16[8,600,1024])) -> (s32[], bf16[8,600,1024]) {{
  %p = (s32[], bf16[8,600,1024]) parameter(0)
  %cache = bf16[8,600,1024] get-tuple-element(%p), index=1
  %scatter_fusion.1 = bf16[8,600,1024] fusion(%cache), kind=kCustom, calls=%g
  %norm = bf16[8,1024] fusion(%cache), kind=kLoop, {NAMED % "decoder._layer"}, {CYCLES % 30}
  %slice-start.2 = bf16[8] slice-start(%cache)
  ROOT %out = (s32[], bf16[8,600,1024]) tuple(%p, %scatter_fusion.1)
}}

%true (p: (s32[])) -> pred[] {{
  ROOT %more = pred[] constant(true)
}}

%chunk (p: (s32[])) -> (s32[]) {{
  %p = (s32[]) parameter(0)
  ROOT %while.3 = (s32[]) while(%p), condition=%true, body=%search, {TRIPS}
}}

%round (p: (s32[])) -> (s32[]) {{
  %p = (s32[]) parameter(0)
  %while.1 = (s32[], bf16[8,600,1024]) while(%p), condition=%true, body=%draft, {NAMED % DRAFT}
  %while.2 = (s32[]) while(%p), condition=%true, body=%chunk, {NAMED % CHUNK}
  %small = f32[8]{{0}} copy(%p), {CYCLES % 5}
  ROOT %either = (s32[]) conditional(%p, %p, %p), branch_computations={{%short, %long}}
}}

ENTRY %main (p: s32[]) -> (s32[]) {{
  %p = s32[] parameter(0)
  %copy.7 = f32[1024,1024]{{0,1:T(8,128)}} copy(%p), {CYCLES % 700}
  ROOT %while.9 = (s32[]) while(%p), condition=%true, body=%round, {NAMED % "decode"}
}}
"""
SETTING = run.Setting("v5e", "blt-s", 8)


@pytest.fixture(name="row")
def fixture_row():
    return run.count(PROGRAM, decoder_layers=2) | {"draft_steps": 8}


def test_parts(row):
    call, around, draft, chunk = (
        row["parts"][name] for name in ("call", "round", "draft", "chunk")
    )
    assert (call["operations"], call["copies"], call["copied_bytes"]) == (1, 1, 4 * 2**20)
    assert (around["operations"], around["cycles"], around.get("copies")) == (1, 5, None)
    assert (draft["operations"], draft["scatters"]) == (2, 1)
    assert chunk["operations"] == 4  # the search takes four steps
    assert row["operations_per_decoder_layer"] == 0.5


def test_what_a_step_runs_if_it_predicts_a_latent():
    """Which is in one branch of a conditional, of which a step counts the shortest."""
    branches = "conditional(%p, %p, %p), branch_computations={%short, %long}"
    step = f"  %cond.2 = (s32[]) {branches}\n  %slice-start.2"
    row = run.count(PROGRAM.replace("  %slice-start.2", step), decoder_layers=2)
    assert row["parts"]["draft"]["operations"] == 2
    assert row["parts"]["renewal"]["operations"] == 1
    row["draft_steps"] = 8
    closing = 1 - (1 - 1 / 4.4) ** 8  # a patch of 4.4 bytes closes in one of eight rows
    assert run.whole(SETTING, row, "operations") == pytest.approx(1 + 8 * 2 + 8 * closing + 4)


def test_plain_decoding_runs_the_global_transformer_if_any_row_closes_a_patch(row):
    for rows, chunks in ((1, 1 / 4.4), (2, 1 - (3.4 / 4.4) ** 2)):
        plain = run.whole(run.Setting("v5e", "ar", rows), row | {"draft_steps": 0}, "operations")
        assert plain == pytest.approx(1 + 4 * chunks)


def test_a_round_takes_all_steps_of_its_draft(row):
    assert run.whole(SETTING, row, "operations") == 1 + 8 * 2 + 4
    assert run.whole(SETTING, row, "cycles") == 5 + 8 * 30


def test_a_cache_that_is_copied_again_is_told(row):
    copied = "  %copy.5 = bf16[8,600,1024] copy(%cache)\n  %slice-start.2"
    again = run.count(PROGRAM.replace("  %slice-start.2", copied), decoder_layers=2)
    assert run.unexpected(SETTING, again, row)[0] == "1 copies of 1 MB or more a draft, not 0"


def test_a_tenth_more_operations_are_told(row):
    expected = {"parts": {"round": {"operations": 100}}}
    found = copy.deepcopy(expected)
    for count, complaints in ((110, 0), (111, 1), (60, 0)):
        found["parts"]["round"]["operations"] = count
        assert len(run.unexpected(SETTING, found, expected)) == complaints
    assert not run.unexpected(SETTING, row, row)
