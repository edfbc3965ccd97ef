"""`bytelax tune`: its choice from made-up costs, and `method="tuned"`, which runs it."""

import json
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import checkpoints, cli
from bytelax.measure import timing, tune
from bytelax.measure.timing import Contestant, Ratio
from bytelax.model import Model
from bytelax.running import Statistics
from bytelax.systems import tuned
from bytelax.systems.tuned import Setting
from tests.helpers import models_for_tests as models
from tests.helpers import self_drafting_models
from tests.helpers.commands import refused

PROMPTS = [b"again and again and again", b"on and on and on and on an"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made_up(monkeypatch, *, drafted, shares, confirmed):
    """Windows that cost 10 and 1 for each further byte; costs of drafting a byte by method."""

    def seconds(model, prompts, contestants, **how):
        found = []
        for method, options in contestants:
            length = options.get("window", 1 + options.get("draft_length", 0)) - 1
            found.append(10.0 + length + length * drafted.get(method, 0.0))
        return found

    def kept(model, batches, contestant, **how):
        longest = contestant.settings["draft_length"]
        return [shares.get(contestant.method, 0.0) ** n for n in range(1, longest + 1)]

    monkeypatch.setattr(tune, "round_seconds", seconds)
    monkeypatch.setattr(tune, "kept", kept)
    timed_as(monkeypatch, [confirmed - 0.1 * place for place in range(4)])


def timed_as(monkeypatch, speeds):
    """Speeds of the plans that are timed."""
    found = [types.SimpleNamespace(decode_speed=Ratio(x, x, x)) for x in speeds]
    monkeypatch.setattr(
        timing, "compare_with_plain", lambda model, prompts, asked, **how: found[: len(asked)]
    )


def test_the_fastest_setting_is_kept_and_run(monkeypatch):
    """Of 1 + .9 + .81 + ... bytes and 10 + 3 k, the best is at k = 5, or at the longest before."""
    model = models.model(models.BYTE_LM)
    made_up(monkeypatch, drafted={"lookup": 2.0}, shares={"lookup": 0.9}, confirmed=1.5)
    for longest, best in [(12, 5), (3, 3)]:
        found = tune.tune(model, PROMPTS, max_new_bytes=8, longest=longest)
        speeds = {
            k: sum(0.9**n for n in range(k + 1)) * 10 / (10 + 3 * k) for k in range(1, longest + 1)
        }
        assert max(speeds, key=speeds.get) == best
        assert found.plans[0].speed == pytest.approx(speeds[best])
        assert found.setting == Setting("lookup", {"draft_length": best}, {}, 1.5)
        assert tuned.read(model, 1) == found.setting and found.path.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outs = {
            method: bytelax.generate(model, PROMPTS[:1], method=method, max_new_bytes=24, **more)
            for method, more in [
                ("tuned", {}), ("lookup", {"draft_length": 3}), ("ar", {"window": 4}),
            ]
        }  # fmt: skip
    assert outs["tuned"].lossless and outs["tuned"].stats.drafted
    assert len({out.bytes[0] for out in outs.values()}) == 1
    assert outs["tuned"].stats.rounds == outs["lookup"].stats.rounds


def test_what_was_timed_decides_among_the_best_plans(monkeypatch):
    model = models.model(models.BYTE_LM)
    made_up(monkeypatch, drafted={}, shares={"lookup": 0.9}, confirmed=1.5)
    timed_as(monkeypatch, [1.2, 1.1, 1.6, 1.3])
    found = tune.tune(model, PROMPTS, max_new_bytes=8, longest=8)
    assert [each.plan for each in found.timed] == [found.plans[at] for at in (2, 3, 0, 1)]
    third = {"draft_length": found.plans[2].draft_length}
    assert found.setting == Setting("lookup", third, {}, 1.6)


def test_a_draft_model_is_loaded_as_it_was_tuned(monkeypatch, tmp_path):
    model = models.model(models.BYTE_LM)
    checkpoints.write(tmp_path / "small", model.config, model.params, layout="huggingface")
    made_up(monkeypatch, drafted={"draft-model": 0.1}, shares={"draft-model": 0.9}, confirmed=2.0)
    monkeypatch.chdir(tmp_path)
    loading = {"dtype": "bfloat16", "quantize": "int8"}
    how = {"draft_model": "small", "draft_loading": loading, "longest": 4, "max_new_bytes": 8}
    found = tune.tune(model, PROMPTS, **how)
    asked = {"draft_length": 4, "draft_model": str(tmp_path / "small")}
    assert found.setting == Setting("draft-model", asked, loading, 2.0)
    monkeypatch.chdir("/")
    method, params = bytelax.methods.build("tuned", model)
    assert method.drafter.draft_length == 4
    assert {x.dtype for x in jax.tree.leaves(params)} >= {jnp.dtype("bfloat16"), jnp.dtype("int8")}


@pytest.mark.parametrize(("share", "confirmed"), [(0.1, 2.0), (0.9, 0.97)])
def test_plain_decoding_where_nothing_gains(monkeypatch, share, confirmed):
    """By the plan, or by what the first of it then took."""
    model = models.model(models.BYTE_LM)
    made_up(monkeypatch, drafted={}, shares={"lookup": share}, confirmed=confirmed)
    found = tune.tune(model, PROMPTS, max_new_bytes=8, longest=4)
    assert found.setting == tuned.read(model, 1) == Setting("ar")
    assert (found.plans[0].method == "ar") == (not found.timed) == (share == 0.1)
    with pytest.warns(UserWarning, match="found nothing faster"):
        assert bytelax.methods.build("tuned", model)[0].drafter.draft_length == 0


def test_a_choice_is_for_its_model_batch_and_machine(monkeypatch):
    model = models.model(models.BYTE_LM)
    tuned.write(model, 2, Setting("lookup", {"draft_length": 5}))

    def drafts(model, rows):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            length = bytelax.methods.build("tuned", model, rows=rows)[0].drafter.draft_length
        assert length == 5 or f"has not run with --batch {rows}" in str(told[0].message)
        assert len(told) == (length == 0)
        return length

    assert (drafts(model, 1), drafts(model, 2), drafts(model, 4)) == (0, 5, 0)
    louder = jax.tree_util.tree_map_with_path(
        lambda path, x: 1.1 * x if path[-1].key == "scale" else x, model.params
    )
    others = [
        Model(model.module, louder),
        Model(model.module, jax.tree.map(lambda x: x.astype("bfloat16"), model.params)),
        models.model(models.replace(models.BYTE_LM, max_bytes=512)),
        bytelax.loading.quantized(model),
    ]
    assert [drafts(other, 2) for other in others] == [0] * len(others)
    assert len({tuned.digest(each) for each in [model, *others]}) == 1 + len(others)
    known = tuned.digest(model)
    assert model.device_params and tuned.digest(model) == known  # laid out for kernels
    monkeypatch.setattr(bytelax.compiling, "machine", lambda: "another")
    assert drafts(model, 2) == 0


@pytest.mark.slow
def test_the_batch_is_that_of_the_request(monkeypatch):
    model = models.model(models.BYTE_LM)
    asked = []
    monkeypatch.setattr(tuned, "read", lambda model, rows: asked.append(rows) or Setting("ar"))
    how = {"method": "tuned", "max_new_bytes": 2}
    with pytest.warns(UserWarning, match="nothing faster"):
        bytelax.generate(model, PROMPTS[:1], samples=3, **how)
        list(bytelax.stream(model, PROMPTS, **how))
        bytelax.generate_many(model, PROMPTS, batch=20, **how)
        bytelax.turns(model, PROMPTS, **how)
    assert asked == [4, 2, 24, 1]


@pytest.mark.parametrize("text", ["", "{}", '{"method": "blt-d"}', '{"method": "ar", "more": 1}'])
def test_a_file_that_it_did_not_write(text):
    model = models.model(models.BYTE_LM)
    path = tuned.write(model, 1, Setting("ar"))
    path.write_text(text)
    with pytest.raises(ValueError, match=f"{path} is not what `bytelax tune` writes"):
        bytelax.methods.build("tuned", model)


def test_what_drafting_costs_between_the_lengths_that_were_timed():
    windows = [4.0, 5.0, 6.0, 9.0, 9.5]
    rounds = {1: 5.0 + 0.3, 2: 6.0 + 0.5, 4: 9.5 + 1.1}
    assert tune.drafting_costs(windows, rounds, 4) == pytest.approx([0.3, 0.5, 0.8, 1.1])
    assert tune.drafting_costs(windows, {4: 10.5}, 4) == pytest.approx([1.0] * 4)


def test_what_a_model_can_run():
    """With heads: three bytes ahead, two bytes, an exit whose two-byte head drafts pairs."""
    found = tune.candidates(self_drafting_models.trunk(), 5, None)
    assert list(found["composed"]) == [2, 4] and found["two-byte"] == {1: {}}
    assert found["lookup"] == {n: {"draft_length": n} for n in range(1, 6)}
    assert "blt-s" not in found and "eagle" in found
    blt = models.model(models.replace(models.VARIANTS["own_embedding"], block_size=4))
    found = tune.candidates(blt, 6, None)
    assert found.keys() == {"lookup", "blt-s", "blt-dv"}
    assert found["blt-dv"][4] == {"block_size": 4} and max(found["blt-dv"]) == 4


@pytest.mark.slow
def test_what_rounds_keep():
    """A model that drafts for itself keeps all; a lookup nothing in rounds in which it finds none.

    At the first position no end of a text cuts anything off.
    """
    model = models.chain(b"abcd")
    batches = [[b"abcdabcd", b"abcdabc"], [b"x", b"dabcdabc"]]
    itself = Contestant("draft-model", {"draft_length": 3, "draft_model": model})
    how = {"max_new_bytes": 17, "allow_eos": False}
    assert tune.kept(model, batches, itself, **how) == [1, 1, 1]
    shares = tune.kept(model, batches, Contestant("lookup", {"draft_length": 3}), **how)
    outputs = [
        bytelax.generate(model, rows, method="lookup", draft_length=3, **how) for rows in batches
    ]
    stats = Statistics.sum([out.stats for out in outputs])
    found, kept = stats.drafted_by_position[0], stats.accepted_by_position[0]
    rounds = stats.rounds
    assert found < rounds and shares[0] == pytest.approx(kept / rounds)
    assert shares == pytest.approx([found / rounds] * 3)


def test_prompts_are_lines_spread_over_the_text():
    text = b"".join(b"%d\n\n" % n for n in range(10))
    assert tune.prompts_of(text, 5) == [b"0", b"2", b"4", b"6", b"8"]
    assert tune.prompts_of(b"a\r\n \nb", 5) == [b"a", b"b", b"a", b"b", b"a"]


def test_the_command(monkeypatch, capsys, model, tmp_path):
    """Then again with a draft model in int8, of which the choice says how it was loaded."""
    made_up(monkeypatch, drafted={}, shares={"lookup": 0.9, "draft-model": 0.8}, confirmed=2.0)
    (tmp_path / "prompts.txt").write_bytes(b"\n".join(PROMPTS))
    flags = ["tune", "--model", model, "--data", str(tmp_path / "prompts.txt"), "--longest", "4"]
    assert cli.main(flags) == 0
    out = capsys.readouterr().out
    where = tuned.path_of(bytelax.load(model), 1)
    assert "lookup with 4 bytes: 2.00 times plain decoding" in out and str(where) in out
    assert cli.main([*flags, "--batch", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["setting"]["method"] == "lookup" and told["path"].endswith("-4.json")
    assert np.argmax([plan["speed"] for plan in told["plans"]]) == 0
    asked = ["generate", "--model", model, "again and again", "--max-new-bytes", "8", "--json"]
    assert cli.main([*asked, "--method", "tuned"]) == 0
    drafted = json.loads(capsys.readouterr().out)
    assert drafted["lossless"] and drafted["stats"]["drafted_by_position"][3:]
    assert cli.main([*asked, "--window", "5"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [x["base64"] for x in plain["results"]] == [x["base64"] for x in drafted["results"]]
    assert cli.main([*flags, "--draft-model", model, "--draft-quantize", "int8", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["setting"]["draft_loading"] == {"dtype": None, "quantize": "int8"}


@pytest.mark.parametrize(
    ("flags", "text", "says"),
    [
        ([], b"\n \n", "there is no prompt"),
        (["--batch", "0"], b"a", "batch must be at least 1"),
        (["--temperature", "-1"], b"a", "temperature must be"),
        (["--longest", "5000"], b"a", "--longest must lie in 1..64"),
        (["--override", "max_bytes=64"], b"a", "no room for 128"),
        (["--draft-model", "nowhere"], b"a", "nowhere"),
        (["--draft-quantize", "int8"], b"a", "and none is named"),
    ],
)
def test_bad_input_is_one_line(capsys, model, tmp_path, flags, text, says):
    (tmp_path / "prompts.txt").write_bytes(text)
    data = ["--data", str(tmp_path / "prompts.txt")]
    assert says in refused(capsys, "tune", "--model", model, *data, *flags)
