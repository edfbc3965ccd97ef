"""`bytelax demo`: what it prints and refuses."""

import pytest

from bytelax import checkpoints, cli, generate, loading
from bytelax.measure import demo
from tests.helpers import models_for_tests as models


def saved(directory, config):
    small = models.model(config)
    checkpoints.write(directory, small.config, small.params, layout="orbax")
    return str(directory)


@pytest.mark.slow
def test_a_model_that_drafts_for_itself(tmp_path, capsys):
    model = saved(tmp_path / "model", models.BYTE_LM)
    assert cli.main(["demo", "--model", model, "--max-new-bytes", "8"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "plain decoding with drafts" in told
    assert f"{len(demo.PROMPTS)} of {len(demo.PROMPTS)} texts have the same bytes" in told


def test_drafters_are_those_that_the_model_has():
    def names(config):
        return [each.method for each in demo.drafters_of(models.model(config))]

    assert names(models.BYTE_LM) == ["early-exit", "lookup"]
    trained = models.replace(models.BASE, decoder_input="embedding", block_size=8)
    assert names(models.BASE) == ["blt-s", "lookup"]
    assert names(trained) == ["blt-s", "blt-dv", "lookup"]


@pytest.mark.slow
def test_the_prompts_do_not_loop():
    """Greedy continuations by `small-lm` end by themselves, or repeat no line of the screen."""
    model = loading.load("small-lm")
    found = generate(model, demo.PROMPTS, max_new_bytes=demo.NEW, stop=demo.STOP)
    for output in found.bytes:
        phrases = {output[i : i + 38] for i in range(len(output) - 37)}
        assert max((output.count(phrase) for phrase in phrases), default=0) < 3, output
