"""The command line: what it prints, and how it fails."""

import base64
import importlib
import io
import json
import logging
import os
import subprocess
import sys
import typing
import warnings

import jax
import numpy as np
import pytest

import bytelax
from bytelax import checkpoints, cli
from bytelax.checkpoints import orbax
from bytelax.commands import flags
from bytelax.commands.convert import Convert
from tests.helpers import models_for_tests as models
from tests.helpers.commands import refused
from tests.helpers.marks import slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    heads = {"head_dim": 16}  # as transformers has it
    small = models.model(models.replace(models.PLAIN, max_bytes=4096, global_transformer=heads))
    return models.saved(small, tmp_path_factory.mktemp("cli") / "model")


@pytest.fixture(scope="module")
def byte_lm(tmp_path_factory):
    return models.saved(models.model(models.SMALLEST), tmp_path_factory.mktemp("cli") / "lm")


def _json(capsys, *args):
    assert cli.main([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("which", ["byte_lm", slow("model")])
def test_generate_json(which, request, capsys):
    model = request.getfixturevalue(which)
    printed = _json(
        capsys, "generate", "--model", model, "one", "two", "--max-new-bytes", "8", "--logprobs"
    )
    assert printed["lossless"] is True
    assert len(printed["results"]) == 2
    for result in printed["results"]:
        out = base64.b64decode(result["base64"])
        assert result["text"] == out.decode("utf-8", "replace")
        assert result["stop"] in ("length", "eos")
        assert len(result["log_probs"]) == len(out)
    assert printed["stats"]["bytes"] == sum(r["stats"]["bytes"] for r in printed["results"])


@pytest.mark.slow  # decode/test_on_mesh.py
def test_generate_on_a_mesh(model, capsys):
    flags = ["generate", "--model", model, "one", "two", "three", "--max-new-bytes", "6"]
    one = _json(capsys, *flags)["results"]
    many = _json(capsys, *flags, "--mesh", "data=2,tensor=2")["results"]
    assert [r["base64"] for r in many] == [r["base64"] for r in one]
    assert "does not divide evenly on the mesh" in refused(capsys, *flags, "--mesh", "tensor=8")
    assert "there are 8" in refused(capsys, *flags, "--mesh", "data=16")


def test_prompts_from_files_and_standard_input(byte_lm, capsys, tmp_path, monkeypatch):
    raw = b"caf\xe9 \xff\x00 not utf-8"
    (tmp_path / "prompt").write_bytes(raw)
    flags = ["generate", "--model", byte_lm, "--max-new-bytes", "8"]
    from_file = _json(capsys, *flags, "--file", str(tmp_path / "prompt"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    from_stdin = _json(capsys, *flags)
    escaped = raw.replace(b"\x00", b"").decode("utf-8", "surrogateescape")
    from_argument = _json(capsys, *flags, escaped)
    assert from_file["results"][0]["base64"] == from_stdin["results"][0]["base64"]
    assert from_argument["results"][0]["stats"]["bytes"] == 8


def test_nothing_to_continue(byte_lm, capsys, monkeypatch):
    """An empty prompt that is named begins a text."""
    flags = ["generate", "--model", byte_lm, "--max-new-bytes", "2"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert "standard input is empty: name a prompt" in refused(capsys, *flags)
    assert _json(capsys, *flags, "")["results"][0]["stats"]["bytes"] == 2


def test_stream_prints_what_generate_prints(capfdbinary, tmp_path):
    chain = models.chain(b"a\xffb\xc3c\xe6\x97\xa5")  # UTF-8 here and there
    small = models.saved(chain, tmp_path / "small")
    flags = ["generate", "--model", small, "--max-new-bytes", "22", "c"]
    assert cli.main(flags) == 0
    whole = capfdbinary.readouterr().out
    assert whole == b"\xe6\x97\xa5a\xffb\xc3c" * 2 + b"\xe6\x97\xa5a\xffb\n"
    assert cli.main([*flags, "--stream"]) == 0
    assert capfdbinary.readouterr().out == whole


@pytest.fixture
def nan_loads(monkeypatch):
    """Weights that are NaN stand for logits that are so for another reason."""
    monkeypatch.setattr(orbax, "check_finite", lambda *_: None)


@pytest.mark.slow
def test_logits_of_ids_that_are_never_emitted_are_not_read(nan_loads, capsys, tmp_path):
    """Not for log-probabilities either, so JSON has a number for each byte."""
    broken = models.chain(b"abcdefgh")
    head = broken.params["head"]
    head["kernel"] = head["kernel"].at[0, 0].set(float("nan"))
    directory = models.saved(broken, tmp_path / "broken", layout="orbax")
    flags = ["generate", "--model", directory, "--max-new-bytes", "3", "--logprobs"]
    assert cli.main([*flags, "--json", "a"]) == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [round(x) for x in printed["results"][0]["log_probs"]] == [0] * 3


def test_broken_logits_are_told(nan_loads, capsys, tmp_path, monkeypatch):
    broken = models.broken_after("b", models.chain(b"abcdefgh"))
    command = ["generate", "--model", models.saved(broken, tmp_path / "broken", layout="orbax")]
    assert cli.main([*command, "c", "ha"]) == 0
    wrote, told = capsys.readouterr()
    assert wrote == "defghab\nb\n"
    assert "prompt 1: the model's logits are NaN or infinite" in told.splitlines()[1]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a")))
    assert cli.main([*command, "--turns", "g"]) == 0
    wrote, told = capsys.readouterr()
    assert wrote == "b\n" and "turn 0: the model's logits are NaN or infinite" in told


def test_convert(byte_lm, capsys, tmp_path):
    before = bytelax.load(byte_lm)
    for layout in ("orbax", "huggingface"):
        out = str(tmp_path / layout)
        flags = ["convert", "--model", byte_lm, "--out", out, "--to", layout]
        assert _json(capsys, *flags)["layout"] == layout
        assert (tmp_path / layout / "model.safetensors").exists() == (layout == "huggingface")
        after = bytelax.load(out)
        assert after.config == before.config
        jax.tree.map(np.testing.assert_array_equal, after.params, before.params)
    assert "or overwrite the model in it (overwrite=True, --overwrite)" in refused(capsys, *flags)
    assert cli.main([*flags, "--overwrite"]) == 0


def test_methods(capsys):
    rows = _json(capsys, "methods")
    options = {row["name"]: [option["name"] for option in row["options"]] for row in rows}
    assert options["ar"] == []
    assert options["blt-s"] == ["draft_length", "latent"]
    assert options["blt-d"] == ["block_size", "unmask", "alpha", "gamma"]
    assert options["lookup"] == ["draft_length"]
    assert options["draft-model"] == ["draft_length", "draft_model"]


@pytest.mark.parametrize(
    "flags",
    [
        ["generate", "a", "--method", "draft-model", "--draft-model"],
        ["bench", "--repeats", "1", "--json"],
    ],
)
def test_a_draft_model_in_int8(capsys, tmp_path, monkeypatch, flags):
    small = models.saved(models.chain(b"abcdefgh"), tmp_path / "small")
    read, asked = checkpoints.read, []
    monkeypatch.setattr(
        checkpoints, "read", lambda *at, **how: asked.append(how["quantize"]) or read(*at, **how)
    )
    flags += [f"draft-model:draft_model={small}" if flags[0] == "bench" else small]
    more = ["--model", small, "--max-new-bytes", "2", "--draft-quantize", "int8"]
    assert cli.main([*flags, *more]) == 0
    assert sorted(asked, key=bool) == [None, "int8"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--max-new-bytes", "0", "x"], "--max-new-bytes must"),
        (["--max-new-bytes", "many", "x"], "--max-new-bytes: not a whole number: 'many'; see"),
        (["--max-new-bytes", "999999999", "x"], "context"),
        (["--temperature", "-1", "x"], "temperature"),
        (["--top-p", "0", "x"], "--top-p"),
        (["--top-k", "-2", "x"], "--top-k"),
        (["--window", "0", "x"], "window"),
        (["--method", "blt-x", "x"], "'blt-x'; did you mean blt-s?"),
        (["--method", "draft-model", "x"], "Missing from bytelax generate: --draft-model"),
        (["--method", "lookup", "--draft-length", "0", "x"], "--draft-length"),
        (["--method", "lookup", "--draft-length", "8,4", "x"], "--draft-length"),
        (["--method", "blt-s", "--window", "8", "x"], "9..4096, got 8: a round drafts 8 bytes"),
        (["--logprobs", "x"], "add --json"),
        (["--draft-quantize", "int8", "x"], "and none is named"),
        (["--draft-length", "3", "x"], "Unrecognized options: --draft-length, 3"),
        (["--stop", "", "--", "x"], "stop"),
        (["--seed", "-1", "x"], "seed"),
        (["--override", "nope=1", "x"], "nope"),
        (["--override", "nope", "x"], "name=value"),
        (["--override", "max_bytes=abc", "x"], "max_bytes"),
        (["--override", "patching_threshold=NaN", "x"], "finite"),
        (["--override", "dtype=3", "x"], "dtype"),
        (["--dtype", "int8", "x"], "int8"),
        (["--metod", "ar"], "Unrecognized options: --metod, ar. Perhaps you meant: --method STR;"),
        (["--file", "no-such-file"], "bytelax: no-such-file: No such file or directory"),
    ],
)
def test_bad_generate(model, capsys, flags, says):
    assert says in refused(capsys, "generate", "--model", model, *flags)


def test_bad_commands(model, capsys, tmp_path):
    out = ["--out", str(tmp_path / "out")]
    assert "nowhere" in refused(capsys, "generate", "--model", str(tmp_path / "nowhere"), "x")
    assert "model is empty" in refused(capsys, "generate", "--model", "", "x")
    small = ["--method", "draft-model", "--draft-model", ""]
    assert "model is empty" in refused(capsys, "generate", "--model", model, *small, "x")
    assert "explode" in refused(capsys, "explode")
    assert "COMMAND" in refused(capsys)
    assert "empty" in refused(capsys, "convert", "--model", model, "--out", model)
    steps = ["--data", "x.txt", "--optimizer.steps", "0"]
    told = refused(capsys, "train", "byte-lm", *out, *steps)
    assert told.startswith("bytelax: --optimizer.steps must be at least 1, got 0;")
    monotone = ["--override", "monotonicity=true", "--to", "huggingface"]
    assert "monotonicity" in refused(capsys, "convert", "--model", model, *out, *monotone)


@pytest.mark.parametrize("known", [None, "1"])
def test_settings_of_the_process_are_for_the_command_alone(monkeypatch, known):
    """A warning is a line, and XLA's are kept away unless the caller has said otherwise."""
    news, name = logging.getLogger("bytelax.compiling"), "TF_CPP_MIN_LOG_LEVEL"
    monkeypatch.delenv(name, raising=False)
    if known is not None:
        monkeypatch.setenv(name, known)

    def settings():
        return os.environ.get(name), news.level, warnings.formatwarning

    def look(*_):
        seen.append(settings())
        raise ValueError("the end")

    seen: list = []
    monkeypatch.setattr(cli, "_parse", look)
    before = settings()
    assert cli.main(["generate"]) == 2 and settings() == before
    ((log, level, formatted),) = seen
    assert (log, level) == (known or "3", logging.ERROR)
    assert formatted("said", UserWarning, "file.py", 1) == "bytelax: said\n"


def test_a_kernel_that_does_not_start_is_one_line(capsys, monkeypatch):
    """With the way out that `gpu.h` names, and without what XLA says around it."""
    told = "a kernel of bytelax did not start on this GPU (why): BYTELAX_NATIVE=0 leaves it to XLA"

    def run(*_):
        raise jax.errors.JaxRuntimeError(f"INTERNAL: {told}\nwhere")

    monkeypatch.setattr(cli, "_parse", run)
    assert refused(capsys, "generate") == f"bytelax: {told}"


def test_a_reader_that_has_closed_the_pipe_is_no_error():
    command = f"{sys.executable} -m bytelax methods | true; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert ran.stdout.strip() in ("0", "141") and not ran.stderr


def test_exit_code_of_the_process():
    command = [sys.executable, "-m", "bytelax.cli", "generate", "--metod", "ar"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1


def test_help_shows_the_options_of_a_method(capsys):
    assert cli.main(["generate", "--method", "eagle", "x", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "one trained layer drafts" in shown and "--beam" in shown and "--latent" not in shown
    assert cli.main(["generate", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--method NAME --help" in shown and "--beam" not in shown


def test_numbers_before_the_prompt(byte_lm, capsys):
    """They take all that follows: a prompt is not lost among them without a word."""
    flags = ["generate", "--model", byte_lm, "--method", "medusa", "--branches", "3", "2"]
    told = refused(capsys, *flags, "The cell")
    assert "--branches: " in told and "['3', '2', 'The cell']; it reads all up to the" in told
    assert cli._parse([*flags, "--", "The cell"])[1].decoding.branches == (3, 2)


def test_every_command_that_loads_a_model_names_it_alike():
    for name in ("generate", "demo", "bench", "score", "patches", "calibrate", "convert"):
        module = importlib.import_module(f"bytelax.commands.{name}")
        hints = typing.get_type_hints(getattr(module, name.capitalize()), include_extras=True)
        assert hints["model"] == flags.Model, name


def test_layouts_are_those_of_checkpoints():
    assert typing.get_type_hints(Convert)["to"] == checkpoints.Layout
