"""`patches` and `load_patcher`: the cuts that a BLT makes, from its entropy model alone."""

import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import bytelax
from bytelax import checkpoints, load_patcher, patches, vocab
from bytelax.checkpoints import CheckpointError, safetensors_file
from bytelax.models.patching import PatchingConfig
from tests.helpers import meta_layout
from tests.helpers import models_for_tests as models
from tests.helpers.marks import slow

WINDOW = 63
TEXTS = [
    np.random.default_rng(3).integers(0, 256, count).astype(np.uint8).tobytes()
    for count in (63, 1, 40, 2)
]
LONG = np.random.default_rng(4).integers(0, 256, 150).astype(np.uint8).tobytes()
META = models.replace(  # what all three layouts hold
    models.BASE,
    encoder={"kv_heads": 2},
    global_transformer={"kv_heads": 2, "head_dim": 12},
    decoder={"kv_heads": 2, "window": 5},
)


def lengths_of(model, text):
    """From `patch_lengths`, which counts the BOS and the byte to come."""
    ends = np.cumsum(model.patch_lengths(np.array(vocab.encode(text))))
    starts = [0, *(ends[:-1] - 1)]
    return np.diff([start for start in sorted(set(starts)) if start < len(text)] + [len(text)])


@pytest.mark.parametrize("name", [slow("base"), slow("cut"), "own_embedding"])
def test_as_the_model_cuts(name):
    model = models.model(models.VARIANTS[name])
    found = list(patches(model, TEXTS, window=WINDOW))
    ids = np.zeros((len(TEXTS), WINDOW + 1), np.int32)
    for row, text in zip(ids, TEXTS, strict=True):
        row[: len(text) + 1] = vocab.encode(text)
    entropies = np.asarray(model.entropies(ids))
    for text, row, cut in zip(TEXTS, entropies, found, strict=True):
        np.testing.assert_allclose(cut.entropies, row[: len(text)], rtol=0, atol=1e-5)
        assert sum(cut.lengths) == len(text) and b"".join(cut.split(text)) == text
        assert [len(patch) for patch in cut.split(text)] == cut.lengths
    assert found[0].lengths == lengths_of(model, TEXTS[0]).tolist()
    assert len(found[0].starts) > 9  # or nothing was tested


def test_an_empty_text_has_no_patches():
    (cut,) = patches(models.model(models.BASE), [b""], window=WINDOW)
    assert cut.lengths == [] and cut.split(b"") == [] and len(cut.entropies) == 0


def test_the_rule_holds_across_windows():
    """Entropies are those of windows cut by hand; the rule knows nothing of windows."""
    model = models.model(models.VARIANTS["cut"])
    (cut,) = patches(model, [LONG], window=WINDOW, stride=40)
    starts = [0, *range(63, 150, 40)]
    pieces = [LONG[:63]] + [LONG[begin - 23 : begin + 40] for begin in starts[1:]]
    parts = [part.entropies for part in patches(model, pieces, window=WINDOW)]
    expected = np.concatenate([parts[0], *(part[23:] for part in parts[1:])])
    np.testing.assert_array_equal(cut.entropies, expected)
    rule, last, starts = model.config.patching, 0, [0]
    assert rule.max_patch_length == 3
    for at in range(1, len(LONG)):
        if expected[at] > rule.threshold:
            last = at
        if (at - last) % 3 == 0:
            starts.append(at)
    assert cut.starts.tolist() == starts


@pytest.fixture
def read(monkeypatch):
    """Names of the tensors that have been read since."""
    names, rows, load = [], safetensors_file._rows, ocp.load

    def seen_rows(path, name, start, stop):
        names.append(f"{path.parent.name}/{name}")
        return rows(path, name, start, stop)

    def seen_load(path, abstract):
        flat = checkpoints.layout.flatten(abstract)
        names.extend(name for name, leaf in flat.items() if leaf is not ocp.PLACEHOLDER)
        return load(path, abstract)

    monkeypatch.setattr(safetensors_file, "_rows", seen_rows)
    monkeypatch.setattr(ocp, "load", seen_load)
    return names


@pytest.mark.parametrize(
    ("layout", "prefix"),
    [("orbax", "patcher/"), ("huggingface", "a/model.patcher."), ("meta", "entropy_model/")],
)
def test_nothing_but_the_entropy_model_is_read(layout, prefix, read, tmp_path):
    model = models.model(META)
    meta_layout.write(tmp_path / "a", model.config, model.params, layout=layout)
    patcher = load_patcher(tmp_path / "a")
    assert len(read) >= 8 and all(name.startswith(prefix) for name in read), read
    assert patcher.rule == model.config.patching
    for a, b in zip(
        patches(patcher, TEXTS, window=WINDOW), patches(model, TEXTS, window=WINDOW), strict=True
    ):
        np.testing.assert_array_equal(a.entropies, b.entropies)
        np.testing.assert_array_equal(a.starts, b.starts)


@pytest.mark.parametrize("layout", ["orbax", "huggingface", "meta"])
def test_an_entropy_model_by_itself(layout, tmp_path):
    """Also as the directory of a run; it has no rule of its own, so it can be given one."""
    model = models.model(models.PATCHER)
    run = tmp_path / "run"
    run.mkdir()
    meta_layout.write(run / "model", model.config, model.params, layout=layout)
    (run / "config.toml").write_text("")
    patcher = load_patcher(run, patching_threshold=5.2, max_patch_length=7, max_bytes=100)
    assert patcher.rule == PatchingConfig(threshold=5.2, max_patch_length=7)
    assert patcher.module.config.max_bytes == 100
    (cut,) = patches(patcher, [LONG])
    assert max(cut.lengths) <= 7
    high = np.flatnonzero(cut.entropies > 5.2)
    assert set(high) <= set(cut.starts) | {0} and 5 < len(high) < 140


def test_the_bundled_one():
    patcher, model = load_patcher("tiny"), bytelax.load("tiny")
    assert patcher.rule == model.config.patching
    assert patcher.params.keys() == model.params["patcher"].keys()


def test_what_has_no_entropy_model(tmp_path):
    strides = models.model(models.VARIANTS["stride"])
    with pytest.raises(ValueError, match="has no entropy model"):
        patches(strides, [b"x"])
    with pytest.raises(ValueError, match="has no entropy model"):
        patches(models.model(models.BYTE_LM), [b"x"])
    checkpoints.write(tmp_path / "a", strides.config, strides.params, layout="huggingface")
    with pytest.raises(CheckpointError, match="cuts patches by stride and has no entropy model"):
        load_patcher(tmp_path / "a")
    with pytest.raises(CheckpointError, match="patches by byte need no entropy model"):
        load_patcher("tiny-lm", patching_mode="byte")
    with pytest.raises(CheckpointError, match="cannot override 'dtype'"):
        load_patcher("tiny-lm", dtype="float32")
    with pytest.raises(CheckpointError, match="finite"):
        load_patcher("tiny-lm", patching_threshold=float("inf"))
    with pytest.raises(CheckpointError, match="there is no directory nowhere"):
        load_patcher("nowhere")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    with pytest.raises(ValueError, match="a run without a model"):
        load_patcher(tmp_path / "run")
