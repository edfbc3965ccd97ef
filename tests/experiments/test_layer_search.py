"""The search for blocks to skip: its scores are those of a model that skips them, and it finds."""

import ast
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import checkpoints
from bytelax.model import Model
from bytelax.models import kv_cache
from bytelax.models.transformer import LayerRange
from experiments.speed.self_drafting import layers
from tests.helpers import models_for_tests as models

CONFIG = models.replace(models.BYTE_LM, trunk={"layers": 3, "window": 9})
IDS = models.random_text(9, 24)  # one row more than go through the model at a time
LONGEST = 4


@pytest.fixture(scope="module")
def small():
    return models.model(CONFIG, scale=2.0)


def without_output(model, block, half, layer):
    """The model with a half-block that adds nothing."""
    trunk = model.params["trunk"]
    weights = trunk[block][half] | {layer: {"kernel": 0 * trunk[block][half][layer]["kernel"]}}
    trunk = trunk | {block: trunk[block] | {half: weights}}
    return Model(model.module, model.params | {"trunk": trunk})


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
@pytest.mark.parametrize(
    ("block", "half", "layer", "attention", "mlp"),
    [("layers_1", "attention", "out", (1,), ()), ("layers_2", "mlp", "down", (), (2,))],
)
def test_a_useless_half_block_is_found_first(
    small, temperature, block, half, layer, attention, mlp
):
    planted = without_output(small, block, half, layer)
    (first,) = layers.search(planted, IDS, temperature=temperature, longest=LONGEST, most=1)
    assert (first.skip_attention, first.skip_mlp) == (attention, mlp)
    assert first.accepted == pytest.approx(1, abs=1e-5)
    assert first.bytes_per_round == pytest.approx(first.draft_length + 1, abs=1e-4)
    assert first.speed > 1
    (other,) = layers.search(small, IDS, temperature=temperature, longest=LONGEST, most=1)
    assert other.accepted < 0.99


def skipping(model, found):
    """Logits of the model that does skip them."""
    skips = LayerRange(no_attention=found.skip_attention, no_mlp=found.skip_mlp)

    def run(module, ids):
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        span = kv_cache.causal_span(positions, window=CONFIG.trunk.window)
        hidden, _ = module.trunk(module.embed(ids), span=span, layers=skips)
        return module.logits(hidden)

    apply = jax.jit(functools.partial(model.module.apply, method=run))
    return np.asarray(apply({"params": model.params}, jnp.asarray(IDS)))


def expected(model, found):
    """(accepted, bytes per round) by hand, at temperature 1."""

    def law(logits):
        bytes_only = np.array(logits)  # and the end of the text
        bytes_only[..., [0, 1, 3]] = -np.inf
        return np.asarray(jax.nn.softmax(bytes_only))

    p, q = law(model.logits(IDS)), law(skipping(model, found))
    overlap = np.minimum(p, q).sum(-1)
    rounds = [row[t : t + LONGEST] for row in overlap for t in range(len(row) - LONGEST + 1)]
    chances = np.cumprod(rounds, axis=1).mean(0)
    return chances[0], 1 + chances[: found.draft_length].sum()


@pytest.mark.slow
def test_scores_are_those_of_a_model_that_skips(small):
    steps = layers.search(small, IDS, temperature=1.0, longest=LONGEST)
    assert [len(s.skip_attention) + len(s.skip_mlp) for s in steps] == [1, 2, 3, 4, 5, 6]
    for found in steps:
        accepted, made = expected(small, found)
        assert found.accepted == pytest.approx(accepted, abs=1e-5)
        assert found.bytes_per_round == pytest.approx(made, abs=1e-5)
        passes = 1 + found.draft_length * found.drafting
        assert found.speed == pytest.approx(made / passes, abs=1e-5)
    assert steps[0].accepted > steps[-1].accepted


@pytest.mark.slow
def test_each_step_takes_the_best_of_its_candidates(small):
    first, second = layers.search(small, IDS, longest=LONGEST, most=2, temperature=1.0)
    shares, always = layers.weight_shares(small)
    speeds = []
    for half, block in np.ndindex(shares.shape):
        runs = np.ones(shares.shape, bool)
        runs[half, block] = False
        skipped = tuple(tuple(np.flatnonzero(~row).tolist()) for row in runs)
        alone = layers.Skipped(*skipped, LONGEST, 0.0, 0.0, 0.0, 0.0)
        _, made = expected(small, alone)
        speeds.append(made / (1 + LONGEST * (always + shares[runs].sum())))
    assert first.speed >= max(speeds) - 1e-5
    assert set(first.skip_attention) <= set(second.skip_attention)
    assert set(first.skip_mlp) <= set(second.skip_mlp)


@pytest.mark.slow
def test_one_program_for_all_steps(small):
    before = layers._survival._cache_size()
    layers.search(small, IDS[:, :20], longest=3)
    assert layers._survival._cache_size() == before + 1


def test_shares_of_weights(small):
    shares, always = layers.weight_shares(small)
    c = CONFIG.trunk
    attention = c.dim * c.head_dim * (2 * c.heads + 2 * c.kv_heads) + c.dim
    mlp = 3 * c.dim * c.ffn_dim + c.dim
    total = c.layers * (attention + mlp) + c.dim * CONFIG.vocab_size + c.dim
    np.testing.assert_allclose(shares[0], attention / total)
    np.testing.assert_allclose(shares[1], mlp / total)
    assert shares.sum() + always == pytest.approx(1)


def test_the_best_length_weighs_what_is_drafted():
    runs = np.ones((2, 2), bool)
    survival = np.array([0.9, 0.5, 0.1])
    cheap = layers.score(runs, survival, 0.05)
    assert cheap.draft_length == 2 and cheap.bytes_per_round == pytest.approx(2.4)
    assert cheap.speed == pytest.approx(2.4 / 1.1)
    dear = layers.score(runs, survival, 0.05, 0.4)
    assert dear.draft_length == 1 and dear.speed == pytest.approx(1.9 / 1.45)


def test_refusals(small):
    with pytest.raises(ValueError, match="only a byte transformer"):
        layers.search(models.model(models.VARIANTS["stride"]), IDS)
    with pytest.raises(ValueError, match=r"1\.\.23"):
        layers.search(small, IDS, longest=24)
    with pytest.raises(ValueError, match="place_cost"):
        layers.search(small, IDS, longest=4, place_cost=-1)


@pytest.mark.slow
def test_it_prints_options_that_generate_takes(small, capsys, monkeypatch, tmp_path):
    checkpoints.write(tmp_path / "model", small.config, small.params, layout="orbax")
    (tmp_path / "text.txt").write_bytes(bytes(range(32, 127)) * 2)
    flags = ["--model", str(tmp_path / "model"), "--window", "40", "--longest", "3", "--most", "2"]
    monkeypatch.setattr("sys.argv", ["layers.py", str(tmp_path / "text.txt"), *flags])
    layers.main()
    *steps, best = capsys.readouterr().out.splitlines()
    assert len(steps) == 2
    options = ast.literal_eval(best.removeprefix("best: "))
    assert bytelax.generate(small, [b"a"], method="layer-skip", max_new_bytes=4, **options).lossless
