"""The least time of what a method did: counted by hand."""

import dataclasses

import jax
import pytest

import bytelax
from bytelax.measure.timing import Contestant
from experiments.harness import floor, roofline
from experiments.harness.floor import Machine
from tests.helpers import models_for_tests as models


def test_a_pass_reads_or_multiplies():
    machine = Machine(bytes_per_second=100.0, flops_per_second=1000.0)
    taken = floor.seconds(machine, 10, 5, passes=3, rows=2, width=1)
    assert taken == pytest.approx(3 * 4 * (10 + 2 * 5) / 100)
    taken = floor.seconds(machine, 10, 5, passes=3, rows=100, width=2, itemsize=0)
    assert taken == pytest.approx(3 * 2 * 10 * 100 * 2 / 1000)


def test_weights_are_all_counted_once():
    model = models.model(models.BASE)
    size = floor.weights(model)
    params = model.params
    whole = sum(
        leaf.size
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        if path[-1].key != "embedding"
    )
    assert sum(size) == whole and size.draft_model == 0
    closing = params["encoder"]["split"]["kernel"].size
    assert size.global_ > closing + sum(
        x.size for x in jax.tree.leaves(params["global_transformer"])
    )


@pytest.mark.slow
def test_plain_decoding_of_a_blt():
    model = models.model(models.BASE)
    out = bytelax.generate(model, [b"again and again"], max_new_bytes=24, allow_eos=False)
    machine = Machine(bytes_per_second=1.0, flops_per_second=1e30)
    found = roofline.seconds(model, Contestant("ar", {}), out.stats, machine, rows=1, context=16)
    size = floor.weights(model)
    seen = floor.caches(model, 16, bytes_per_patch=24 / out.stats.patches)
    local = sum(getattr(size, n) + getattr(seen, n) for n in ("decoder", "encoder", "patcher"))
    expected = 4 * (24 * local + out.stats.patches * (size.global_ + seen.global_))
    assert found == pytest.approx(expected)


def test_a_byte_transformer_that_exits_early():
    """Drafting from half the layers and verifying from there reads half the weights a pass."""
    model = models.model(models.BYTE_LM)
    out = bytelax.generate(model, [b"again"], max_new_bytes=12, allow_eos=False)
    stats = dataclasses.replace(out.stats, drafted_by_position=(4, 4), batch_windows=4)
    machine = Machine(bytes_per_second=1.0, flops_per_second=1e30)
    contestant = Contestant("early-exit", {"exit_layer": 1, "draft_length": 2})
    found = roofline.seconds(model, contestant, stats, machine, rows=1, context=8)
    read = floor.weights(model).decoder + floor.caches(model, 8).decoder
    assert found == pytest.approx(4 * 4 * read * (3 / 2 + 1 / 2))
