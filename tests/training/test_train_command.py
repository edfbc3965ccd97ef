"""`bytelax train` and `bytelax calibrate` as a user types them."""

import dataclasses
import json
import os
import shutil
import signal

import jax
import numpy as np
import pytest

from bytelax import cli, loading, training
from bytelax.checkpoints import config
from bytelax.commands import train
from bytelax.measure import patch_lengths
from bytelax.models import presets
from bytelax.models.patching import PatchingConfig
from bytelax.running import generate
from bytelax.training import data
from tests.helpers import byte_llamas
from tests.helpers.marks import slow
from tests.helpers.tiny_runs import assert_same

TINY = {"dim": 16, "layers": 1, "heads": 2, "kv_heads": 2, "head_dim": 8, "ffn_dim": 32}


def flags(prefix, fields):
    return [
        word
        for name, value in fields.items()
        for word in (f"--{prefix}.{name.replace('_', '-')}", str(value))
    ]


RUN = [
    *flags("data", {"window": 32, "batch": 4, "valid_fraction": 0.2, "prefetch": 0}),
    *flags("optimizer", {"steps": 4, "warmup": 1, "peak": 0.01}),
    *flags("run", {"log_every": 2, "validate_every": 2, "save_every": 2, "validation_batches": 1}),
]
BYTE_LM = flags("model.trunk", TINY)
BLT = [
    *flags("model.encoder", TINY),
    *flags("model.global-transformer", TINY),
    *flags("model.decoder", TINY),
    *flags("model", {"hashing.vocab": 31, "max_bytes": 256}),
    *flags("model.patching", {"threshold": 5.0, "max_patch_length": 8}),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text("".join(f"the cat {i} sat on mat {7 * i % 13}.\n" for i in range(200)))
    return path


@pytest.fixture(scope="module")
def source(corpus):
    return ["--data", rf"{corpus} separator=\n"]


@pytest.fixture(scope="module")
def patcher(tmp_path_factory, source):
    out = tmp_path_factory.mktemp("entropy")
    assert cli.main(["train", "entropy", "--out", str(out), *source, *RUN, *BYTE_LM]) == 0
    return out


@pytest.fixture(scope="module")
def blt(tmp_path_factory, source, patcher):
    out = tmp_path_factory.mktemp("blt")
    arguments = ["--out", str(out), "--patcher", str(patcher), *source, *RUN, *BLT]
    assert cli.main(["train", "blt", *arguments]) == 0
    return out


def parsed(arguments):
    """The flags of a command."""
    return cli._parse(arguments)[1]


def told(capsys, *arguments):
    """What is said of bad input."""
    capsys.readouterr()
    assert cli.main([str(argument) for argument in arguments]) == 2
    return " ".join(capsys.readouterr().err.split())


def assert_all_changed(left, right):
    same = jax.tree.map(np.array_equal, left, right)
    assert not any(jax.tree.leaves(same)), same


# --- train ---


@pytest.mark.slow
def test_the_frozen_entropy_model_is_in_the_blt_bit_for_bit(blt, patcher):
    model = loading.load(blt / "model")
    assert_same(model.params["patcher"], loading.load(patcher / "model").params)
    assert model.config.patching.threshold == 5.0 and model.config.max_bytes == 256


@pytest.mark.slow
def test_json_says_what_came_of_it(tmp_path, source, capsys):
    arguments = ["train", "byte-lm", "--out", str(tmp_path), "--json", *source, *RUN, *BYTE_LM]
    assert cli.main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["step"] == 4 and first["valid"]["bits_per_byte"] > 0
    assert loading.load(first["model"]).config.trunk.dim == 16
    assert cli.main(arguments) == 0  # there is nothing left to do
    assert json.loads(capsys.readouterr().out)["model"] == first["model"]


@pytest.mark.slow
def test_a_student_is_counted_without_its_teacher(tmp_path, source, patcher, capsys):
    out = ["--out", str(tmp_path), "--teacher", str(patcher)]
    capsys.readouterr()
    assert cli.main(["train", "byte-lm", *out, *source, *RUN, *BYTE_LM]) == 0
    own = loading.load(tmp_path).params
    count = sum(leaf.size for leaf in jax.tree.leaves(own))
    assert f"model: {count:,} parameters, 4 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_blt_d_starts_from_a_blt_that_read_encoder_states(tmp_path, source, blt):
    arguments = ["--out", str(tmp_path), "--init", str(blt), *source, *RUN]
    run = parsed(["train", "blt-d", *arguments])
    objective, known = run.prepare()
    params, before = training.initialise(objective, known), loading.load(blt / "model").params
    embed = params["decoder"].pop("embed")
    assert_same(embed, before["encoder"]["embed"])
    assert_same(params, before)
    assert objective.module.config.decoder_input == "embedding"
    blocks = ["--objective.corruption.block-sizes", "4", "8"]
    assert cli.main(["train", "blt-d", *arguments, *blocks]) == 0
    after = loading.load(tmp_path / "model").params
    assert_same(after["patcher"], before["patcher"])
    assert not np.array_equal(after["decoder"]["embed"]["embedding"], embed["embedding"])


@pytest.mark.slow
def test_heads_are_left_behind_when_their_model_is_trained_on(tmp_path, source):
    """They would no longer fit it, and nothing would train them along."""
    run = parsed(["train", "blt", "--out", str(tmp_path), "--init", "tiny", *source])
    objective, known = run.prepare()
    assert loading.load("tiny").config.heads is not None
    assert objective.module.config.heads is None and "heads" not in known


@pytest.mark.slow
def test_heads_of_a_blt_learn_and_the_blt_stays(tmp_path, source, blt, capsys):
    heads = ["--heads.eagle.depths", "1", "--heads.dflash.depths", "1", "--heads.eagle.latent"]
    heads += flags("heads.dflash", {"window": 12, "block_size": 3, "table_rank": 4})
    heads += ["--heads.eagle.window", "12", "--heads.blt-s.ffn-dim", "24"]
    losses = ["--loss-of", "lk", "--own-outputs", "2", "--blocks", "5", "--decay", "4"]
    arguments = ["train", "heads", "--init", blt, "--out", tmp_path, *source, *RUN, *heads]
    arguments = [str(argument) for argument in [*arguments, *losses]]
    before = training.initialise(*parsed(arguments).prepare())
    assert cli.main(arguments) == 0
    after = loading.load(tmp_path / "model")
    learned = after.params.pop("heads")
    assert_all_changed(learned, before["heads"])
    assert_same(after.params, loading.load(blt / "model").params)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    learned_of = {"overlap_dflash_3", "agreed_eagle_2", "overlap_blt_s_2"}
    assert learned_of <= set().union(*lines)
    attached = loading.load(blt / "model", heads=tmp_path / "heads")
    assert attached.config == after.config
    assert_same(attached.params, loading.load(tmp_path / "model").params)
    refused = ["generate", "--model", "tiny", "--heads", tmp_path / "heads", "The cell"]
    assert "for a model of another shape" in told(capsys, *refused)
    assert "does not describe heads" in told(capsys, *refused[:4], blt / "model", "The cell")


@pytest.mark.slow
def test_heads_of_a_llama_from_elsewhere(tmp_path, source):
    """They learn on the frozen model, and draft for it; nothing else of it changes."""
    fields = {"model_type": "qwen3", "head_dim": 6, "tie_word_embeddings": True}
    theirs = byte_llamas.write(tmp_path / "theirs", byte_llamas.SIZES | fields)
    heads = ["--heads.early-exit.depths", "1", "--heads.medusa.count", "2"]
    heads += ["--heads.eagle.depths", "1", "2", "--heads.two-byte.depths", "2"]
    heads += ["--heads.medusa.correction"]
    arguments = ["train", "heads", "--init", theirs, "--out", tmp_path / "run", *source, *RUN]
    arguments = [str(argument) for argument in [*arguments, *heads]]
    before = training.initialise(*parsed(arguments).prepare())
    assert cli.main(arguments) == 0
    trained = loading.load(tmp_path / "run")
    learned = trained.params.pop("heads")
    assert_all_changed(learned, before["heads"])
    assert_same(trained.params, loading.load(theirs).params)
    trained.params["heads"] = learned
    prompts = ["the cat 1 sat on", "mat"]
    plain = generate(trained, prompts, max_new_bytes=12, window=12)
    for method in ("eagle", "medusa", "early-exit", "layer-skip"):
        out = generate(trained, prompts, max_new_bytes=12, window=12, method=method)
        assert out.bytes == plain.bytes and out.stats.drafted, method


@pytest.mark.slow
def test_an_interrupt_saves_and_says_how_to_go_on(tmp_path, source, monkeypatch, capsys):
    whole = data.batches

    def stopping(*args, **keywords):
        for step, ids in enumerate(whole(*args, **keywords), 1):
            if keywords["split"] == "train" and step == 3:
                os.kill(os.getpid(), signal.SIGINT)
            yield ids

    arguments = ["train", "byte-lm", "--out", str(tmp_path), *source, *RUN, *BYTE_LM]
    monkeypatch.setattr(data, "batches", stopping)
    assert cli.main(arguments) == 130
    assert "stopped and saved at step 3: run the same command again" in capsys.readouterr().err
    stopped = loading.load(tmp_path).params
    monkeypatch.undo()
    assert cli.main(arguments) == 0
    assert "going on from step 3" in capsys.readouterr().err
    ended = loading.load(tmp_path).params
    assert not np.array_equal(ended["head"]["kernel"], stopped["head"]["kernel"])


def test_another_config_is_refused_by_name(patcher, source, capsys):
    line = told(
        capsys, "train", "entropy", "--out", patcher, *source, *RUN, *BYTE_LM, "--data.seed", "3"
    )
    assert "data.seed = 0, not 3" in line
    line = told(capsys, "train", "byte-lm", "--out", patcher, *source, *RUN, *BYTE_LM)
    assert 'kind = "entropy", not "byte-lm"' in line


def test_a_file_holds_the_config_and_flags_overrule_it(patcher, tmp_path):
    file = patcher / "config.toml"
    read = ["train", "entropy", "--config", str(file)]
    again = parsed([*read, "--out", "x"])
    assert config.to_toml(train.to_fields(again)) == file.read_text()
    changed = parsed([*read, "--out", "x", "--optimizer.steps", "7", "--data", "other weight=2"])
    assert changed.optimizer == dataclasses.replace(again.optimizer, steps=7)
    assert changed.model == again.model and str(changed.data.sources[0]) == "other weight=2.0"


@pytest.mark.parametrize("kind", list(train.KINDS))
def test_every_kind_takes_a_file(kind, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(f'kind = "{kind}"\n[optimizer]\npeak = 1\nclip = "None"\n')
    read = parsed(["train", kind, f"--config={file}", "--out", "x"])
    assert type(read) is train.KINDS[kind]
    assert read.optimizer.peak == 1.0 and read.optimizer.clip is None
    # The defaults fit, too.
    assert kind == "heads" or read.data.window <= read.model.max_bytes


def test_a_bad_file_is_told(tmp_path, capsys):
    file = tmp_path / "config.toml"
    for text, line in {
        "[optimizer]\nrate = 1\n": "there is an unknown field 'optimizer.rate'",
        "[optimizer]\nsteps = 0\n": "optimizer.steps must be at least 1, got 0",
        'kind = "blt"\n': "not the config of a run of the kind byte-lm",
        "steps\n": "is not TOML",
        '[data]\nsources = ["x weight=0"]\n': "the weight must be positive",
    }.items():
        file.write_text(text)
        out = ["--out", tmp_path / "run"]
        assert line in told(capsys, "train", "byte-lm", "--config", file, *out)


def test_bad_input_is_told_in_one_line(tmp_path, source, patcher, capsys):
    out = ["--out", tmp_path / "run"]
    (tmp_path / "empty.txt").write_text("")
    empty = ["--data", tmp_path / "empty.txt"]
    for line, arguments in {
        "empty.txt: no text to train on": ["byte-lm", *RUN, *BYTE_LM, *empty],
        "absent: no such file": ["byte-lm", "--data", "absent", *RUN, *BYTE_LM],
        "no text is held out: raise --data.valid-fraction": [
            "byte-lm", *source, *RUN, *BYTE_LM, "--data.valid-fraction", "0"],
        "--patcher is required": ["blt", *source, *RUN, *BLT],
        "there is no directory absent": ["blt", "--patcher", "absent", *source, *RUN, *BLT],
        "needs no entropy model": [
            "blt", "--patcher", patcher, "--model.patching.mode", "stride", *source, *RUN],
        "is a byte-lm": ["blt-d", "--init", patcher, *source, *RUN],
        "leave --preset and --model... out": [
            "byte-lm", "--init", patcher, *source, *RUN, *BYTE_LM],
        "needs decoder_input='embedding'": [
            "blt-d", "--patcher", patcher, "--model.decoder-input", "encoder", *source, *RUN, *BLT],
        "do not fill a window of 5,000; lower --data.window": [
            "byte-lm", *source, *RUN, *BYTE_LM, "--data.window", "5000"],
        "optimizer.warmup must lie in 0..4, the steps, got 9": [
            "byte-lm", *source, *RUN, *BYTE_LM, "--optimizer.warmup", "9"],
        "windows of 64 are longer than the model's context, 63 (max_bytes): lower --data.window": [
            "byte-lm", *source, *RUN, *BYTE_LM, "--model.max-bytes", "63", "--data.window", "64"],
        "needs 16 devices": ["byte-lm", "--mesh", "data=8,tensor=2", *source, *RUN, *BYTE_LM],
    }.items():  # fmt: skip
        assert line in told(capsys, "train", *arguments, *out)
    assert not (tmp_path / "run").exists()


def test_a_bucket_is_no_directory(tmp_path, source, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = told(capsys, "train", "byte-lm", *source, *RUN, *BYTE_LM, "--out", "gs://bucket/run")
    assert "--out takes a directory of a file system" in line and not list(tmp_path.glob("gs*"))


@pytest.mark.slow
def test_one_file_is_enough(tmp_path, capsys):
    text = tmp_path / "mine.txt"
    text.write_text("".join(f"line {i} of a text of one document.\n" for i in range(400)))
    out = ["--out", str(tmp_path / "run")]
    arguments = ["train", "byte-lm", "--data", str(text), *out, *BYTE_LM, "--data.window", "32"]
    assert cli.main([*arguments, "--data.batch", "2", "--optimizer.steps", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("10,928 parameters")
    assert "bits per byte on the validation text" in captured.out


def test_heads_start_small_and_a_preset_of_them_has_no_model():
    run = parsed(["train", "heads", "--out", "x"])
    assert run.data.window * run.data.batch * run.optimizer.steps <= 5e6
    sized = parsed(["train", "heads", "--out", "x", "--preset", "100m", "--data.batch", "3"])
    assert (sized.data.window, sized.data.batch, sized.optimizer.steps) == (2048, 3, 20_000)
    assert sized.run.scan and sized.heads == run.heads
    assert sized.optimizer.name == run.optimizer.name


# Each kind and each preset: all together take seconds, for the parser.
@pytest.mark.parametrize(
    ("kind", "preset"),
    [
        (kind, preset) if fast == preset else slow(kind, preset)
        for kind, fast in {
            "entropy": "100m",
            "byte-lm": "1b",
            "blt": "1b",
            "blt-d": "laptop",
        }.items()
        for preset in ("laptop", "100m", "1b")
    ],
)
def test_a_preset_is_what_flags_start_from(kind, preset):
    arguments = ["train", kind, "--out", "x", "--preset", preset]
    run, other = (
        parsed([*arguments, *more])
        for more in ([], ["--optimizer.steps", "7", "--optimizer.warmup", "0"])
    )
    assert type(run) is train.KINDS[kind]
    assert run.data.window <= run.model.max_bytes
    assert other.optimizer == dataclasses.replace(run.optimizer, steps=7, warmup=0)
    assert (other.model, other.data) == (run.model, run.data)
    assert "preset" not in train.to_fields(run)
    if kind == "byte-lm" and preset == "1b":
        assert run.model == presets.BYTE_LM_800M
    if kind == "blt" and preset == "1b":
        assert run.model.config(presets.BLT_1B.patcher) == presets.BLT_1B
    assert (run.model.decoder_input == "embedding") if kind == "blt-d" else True


def test_a_file_changes_a_preset_and_flags_change_both(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("[optimizer]\nsteps = 70\npeak = 0.5\n")
    arguments = ["train", "byte-lm", "--out", "x", "--preset", "laptop", "--config", str(file)]
    run = parsed([*arguments, "--optimizer.steps", "9"])
    assert (run.optimizer.steps, run.optimizer.peak, run.optimizer.name) == (9, 0.5, "muon")


def test_the_warm_up_of_a_short_run_is_recorded_as_a_number():
    run = parsed(["train", "byte-lm", "--out", "x", "--optimizer.steps", "20"])
    assert run.optimizer.warmup_steps == 2 and train.to_fields(run)["optimizer"]["warmup"] == 2


# --- calibrate ---


def brute_force(entropies, lengths, rule, wanted):
    """The mean closest to the wanted one of all thresholds that differ."""
    compared = np.diff(entropies, axis=1, prepend=0) if rule.monotonicity else entropies
    values = np.concatenate([[-99.0], np.unique(compared), [99.0]])
    means = [
        patch_lengths.mean_patch_length(
            entropies, lengths, rule=dataclasses.replace(rule, threshold=float(value))
        )
        for value in values
    ]
    return min(means, key=lambda mean: abs(mean - wanted))


@pytest.mark.parametrize(
    "rule",
    [
        PatchingConfig(),
        slow(PatchingConfig(max_patch_length=5)),
        slow(PatchingConfig(monotonicity=True)),
    ],
)
def test_the_threshold_is_the_best_there_is(rule):
    rng = np.random.default_rng(0)
    entropies = rng.gamma(2.0, 1.0, (3, 20)).astype(np.float32)
    lengths = np.array([20, 20, 13])
    for wanted in (2.0, 3.0, 3.5):
        found, mean = patch_lengths.threshold(entropies, lengths, rule=rule, wanted=wanted)
        assert mean == brute_force(entropies, lengths, rule, wanted)
        exact = dataclasses.replace(rule, threshold=found)
        assert mean == patch_lengths.mean_patch_length(entropies, lengths, rule=exact)
    with pytest.raises(ValueError, match="out of reach"):
        patch_lengths.threshold(entropies, lengths, rule=rule, wanted=50.0)


def test_mean_patch_length_counts_what_is_there():
    entropies = np.array([[0, 9, 0, 0, 9, 0, 9, 9]], np.float32)  # patches 1, 1, 3, 1 of 6 bytes
    rule = PatchingConfig(threshold=1.0)
    assert patch_lengths.mean_patch_length(entropies, np.array([6]), rule=rule) == 6 / 4


@pytest.mark.slow
def test_calibrate_writes_what_the_model_then_does(blt, corpus, tmp_path, capsys):
    model = shutil.copytree(blt / "model", tmp_path / "model")
    arguments = ["calibrate", str(corpus), "--model", str(model), "--json", "--write"]
    wanted = ["--patch-length", "3.5", "--max-patch-length", "6", "--window", "64"]
    assert cli.main([*arguments, *wanted]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["patch_length"] == pytest.approx(3.5, abs=0.1)
    assert result["bytes"] == corpus.stat().st_size
    loaded = loading.load(model)
    assert loaded.config.patching.threshold == result["threshold"]
    assert loaded.config.patching.max_patch_length == 6
    ids = np.array([1, *(byte + 4 for byte in corpus.read_bytes())], np.int32)
    windows = [ids[begin : begin + 64] for begin in range(0, 1024, 64)]
    lengths = [loaded.patch_lengths(window) for window in windows]
    # `patch_lengths` counts the byte after the text, which may open a patch of its own.
    patches = sum(len(row) - (row[-1] == 1) for row in lengths)
    assert 64 * len(windows) / patches == pytest.approx(result["patch_length"], rel=0.1)


def test_calibrate_tells_what_it_cannot_do(patcher, corpus, capsys):
    known = ["calibrate", corpus, "--model", patcher]
    assert "alone has no threshold" in told(capsys, *known, "--write")
    assert "out of reach" in told(capsys, *known, "--patch-length", "5000")
    assert "no such file" in told(capsys, "calibrate", "absent.txt", "--model", patcher)
