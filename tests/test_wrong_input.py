"""Input of a kind that no annotation allows is told in one line, where no annotation is checked.

The tests check annotations, so what is tried here runs in a process of its own.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from bytelax.options import METHODS

CALLS = {
    "generate('tiny', ['a'])": "a model comes from bytelax.load, got 'tiny'",
    "list(bytelax.stream('tiny', 'a'))": "a model comes from bytelax.load, got 'tiny'",
    "score('tiny', ['a'])": "a model comes from bytelax.load, got 'tiny'",
    "decode.Method(lm)": "Model is not a subclass of decode.Target: for a model, take its target()",
    "generate(lm, None)": "prompts must be a list of strings, got None",
    "generate(lm, 3)": "prompts must be a list of strings, got 3",
    "generate(lm, [3])": "a text, prompt or stop string is bytes or text, got 3",
    "score(lm, None)": "texts must be a list of strings, got None",
    "list(bytelax.stream(lm, 3))": "prompts must be a list of strings, got 3",
    "generate(lm, ['a', 'b'], max_new_bytes=[3])": "one for each of the 2 prompts; got [3]",
    "generate(lm, ['a', 'b'], stop=[['x']])": "1 lists of stop strings for 2 prompts",
    "list(bytelax.patches('tiny', ['a']))": "a model comes from bytelax.load, got 'tiny'",
    "decode.Method(lm.target(), accept='greedy')": "accept is a function that judges drafts, such "
    "as decode.typical, got",
    "generate(lm, ['a'], temperature='1')": "temperature is a number, got '1'",
    "generate(lm, ['a', 'b'], temperature=None)": "is a number, or one for each of the 2 rows; got",
    "generate(lm, ['a'], logprobs=5)": "logprobs is True or False, got 5",
    "generate(lm, ['a'], origins=2)": "origins is True or False, got 2",
    "generate(lm, ['a'], allow_eos='no')": "allow_eos is True or False, got 'no'",
    "generate(lm, ['a'], top_k=True)": "top_k is a number, got True",
    "list(bytelax.generate_many(lm, ['a', 'b'], top_k=[1, 2]))": "top_k is a number, got [1, 2]",
    "generate(lm, ['a'], seeds=[1.5])": "seeds are whole numbers, one of them, or a key; got [1.5]",
    "generate(lm, ['a'], seeds=jax.random.split(jax.random.key(0)))": "one of them, or a key; got",
    "generate(lm, ['a'], key=jax.random.key(0))": "takes no 'key'; did you mean 'seeds'?",
    "generate(lm, ['a'], do_sample=True)": "takes no 'do_sample'; did you mean 'temperature'?",
    "list(bytelax.stream(lm, 'a', max_length=3))": "takes no 'max_length'; did you mean 'max_new_",
    r"generate(lm, ['a\ud800'])": r"text has half a character, '\ud800' at 1, which UTF-8 does not",
    r"list(bytelax.stream(lm, '\ud800'))": r"text has half a character, '\ud800' at 0",
    r"generate(lm, ['a'], stop=['\udc00'])": r"text has half a character, '\udc00' at 0",
    r"score(lm, ['\ud800'])": r"text has half a character, '\ud800' at 0",
    "generate(lm.module, ['a'])": "a model comes from bytelax.load, got a ByteLM",
    "jax.jit(lambda: generate(lm, ['a']))()": "within jax.jit use decode.Method",
    "jax.jit(lambda: list(bytelax.stream(lm, 'a')))()": "within jax.jit use decode.Method",
    "jax.jit(lambda: score(lm, ['a']))()": "within jax.jit use decode.Method",
    "bytelax.load('tiny', mesh='data=64')": "JAX_NUM_CPU_DEVICES=64 makes as many of a processor",
    "generate(lm, ['a'], seeds=None)": "seeds are whole numbers, one of them, or a key; got None",
    "generate(lm, ['a'], accept='greedy')": "such as decode.typical, got 'greedy'",
    "generate(lm, ['a'], accept=decode.typical)": "accept judges drafts, and this method drafts",
    "generate(lm, ['a'], method=bytelax.systems.LookupDrafter(4))": "wrap a drafter: decode.",
    "generate(lm, ['a'], method=[])": f"unknown method []; there are: {', '.join(METHODS)}",
    "bytelax.load('tiny', mesh=8)": "mesh must be text such as 'data=8,tensor=4', a "
    "bytelax.MeshConfig or a jax.sharding.Mesh, not int",
    "lm.on(jax.devices()[0])": "or a jax.sharding.Mesh, not ",
    "bytelax.load('tiny', dtype=3)": "dtype 3 is not one of float32, bfloat16, float16, auto",
    "bytelax.load('tiny', dtype=['int8'])": "dtype ['int8'] is not one of float32, bfloat16, "
    "float16, auto",
    "lm.logits([1, 5, 6])": "ids are integers [B S], got int64[3]",
    "lm.logits(np.ones((1, 3)))": "ids are integers [B S], got float64[1,3]",
    "lm.logits(np.zeros((0, 3), int))": "there are no ids, got int64[0,3]",
    "lm.patch_lengths(np.zeros(0, int))": "there are no ids, got int64[0]",
    "lm.logits([[1, 300]])": "ids lie in 0..259, got 1..300",
    "lm.logits(jnp.array([[-1, 4]]))": "ids lie in 0..259, got -1..4",
    "lm.entropies([1, 5])": "ids are integers [B S], got int64[2]",
    "lm.patch_lengths([[1, 5]])": "ids are integers [S], got int64[1,2]",
    "bytelax.vocab.encode(3)": "a text, prompt or stop string is bytes or text, got 3",
    "bytelax.vocab.decode([5, 260])": "ids lie in 0..259, got 260; a byte b is id b + 4",
    "generate(lm, ['a'], progress=3)": "progress is whether to show a bar, or a function, got 3",
    "decode.Method(lm.target()).init(lm.params, decode.Text.of(['a'.encode()], length=9), "
    "budget=2)": "params is decode.Params(model.params), not a dict",
    "bytelax.train(lm, [], optimizer=None)": "such as NextByte(model.module), not a Model",
    "bytelax.train(NextByte(lm.module), [], optimizer='adam')": "optax.adamw(1e-3), not a str",
    "bytelax.train(NextByte(lm.module), [], optimizer=optax.sgd(1), steps='3')": "steps is a whole "
    "number below 2**31 or None, got '3'",
    "bytelax.train(NextByte(lm.module), [], optimizer=optax.sgd(1), run=3)": "run is of class "
    "RunConfig, got 3",
    "OptimizerConfig(steps='3')": "optimizer.steps is a whole number below 2**31, got '3'",
    "OptimizerConfig(name='sgd')": "optimizer.name is one of adamw, muon, got 'sgd'",
    "RunConfig(dtype=jnp.bfloat16)": "run.dtype is one of float32, bfloat16, got <class",
    "DataConfig(sources=3)": "data.sources is a list of Source, got 3",
    "DataConfig(sources=['a.txt'])": "data.sources is a list of Source, got ['a.txt']",
    "Source('a.txt', weight='2')": "weight is a number, got '2'",
    "TransformerConfig(dim=64, layers=2, heads='3')": "heads is a whole number below 2**31 or "
    "None, got '3'",
    "dataclasses.replace(lm.config, heads=3)": "heads is of class HeadsConfig or None, got 3",
    "HeadsConfig(medusa=3)": "medusa is of class MedusaHead, got 3",
    "MedusaHead(count='3')": "count is a whole number below 2**31, got '3'",
    "bytelax.MeshConfig(data='8')": "data is a whole number below 2**31, got '8'",
    "generate(lm, ['a'], method='lookup', draft_params={})": "draft_params belong to a Method; "
    "'lookup' has its own",
    "generate(lm, ['a'], method='lookup', block_size=None)": "'lookup' takes no 'block_size'",
    "distributed.start(Processes(coordinator='auto'))": "outside a known cluster",
}

PROGRAM = """
import dataclasses, json, sys
import jax
import jax.numpy as jnp
import numpy as np
import optax
import bytelax
from tests.helpers import models_for_tests
from bytelax import decode, generate, score
from bytelax.models.configs import TransformerConfig
from bytelax.options import HeadsConfig, MedusaHead
from bytelax.pods import distributed
from bytelax.pods.configs import Processes
from bytelax.training.configs import DataConfig, OptimizerConfig, RunConfig, Source
from bytelax.training.objectives import NextByte

calls = json.loads(sys.argv[1])
told = {}
for call in sorted(calls, key=lambda call: "auto" not in call):  # before any use of a device
    if call[:2] == "lm" or "(lm" in call:
        lm = models_for_tests.model(models_for_tests.BYTE_LM)
    try:
        told[call] = repr(eval(call))
    except Exception as error:
        told[call] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told():
    """What each call says, by the call."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([*CALLS])],
        cwd=pathlib.Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return json.loads(ran.stdout)


@pytest.mark.parametrize("call", CALLS)
def test_wrong_input_is_told_in_one_line(call, told):
    kind, _, says = told[call].partition(": ")
    assert kind in ("ValueError", "TypeError", "CheckpointError") and CALLS[call] in says
    assert "\n" not in says
