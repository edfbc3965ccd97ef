"""Nothing in a checkpoint's files gives a traceback, a hang or memory without end."""

import dataclasses
import functools
import itertools
import json
import random
import signal

import jax.numpy as jnp
import pytest

from bytelax import checkpoints
from bytelax.checkpoints import orbax
from bytelax.options import EagleHead, EarlyExitHead, HeadsConfig, MedusaHead, TwoByteHead
from tests.helpers import fuzz, meta_layout
from tests.helpers.random_models import BYTE_LM, META, SQUARE, random_params, shard

HEADS = dataclasses.replace(
    BYTE_LM,
    heads=HeadsConfig(
        early_exit=EarlyExitHead(depths=(1,)),
        medusa=MedusaHead(count=2),
        two_byte=TwoByteHead(depths=(2,)),
        eagle=EagleHead(depths=(1, 1, 2)),
    ),
)
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small model of each kind in each layout."""
    root = tmp_path_factory.mktemp("models")
    for layout, config in (
        ("orbax", SQUARE), ("orbax", HEADS), ("huggingface", META), ("huggingface", HEADS),
        ("meta", META), ("meta", dataclasses.replace(BYTE_LM, mask_documents=True)),
    ):  # fmt: skip
        name = f"{layout}-{'lm' if config is not SQUARE and config is not META else 'blt'}"
        params = random_params(config, dtype=jnp.bfloat16)
        meta_layout.write(root / name, config, params, layout=layout)
        checkpoints.read_config(root / name)
    sharded = root / "sharded"
    checkpoints.write(sharded, META, random_params(META), layout="huggingface")
    shard(sharded)
    return root


def targets(models):
    """Each file that says something, and the ways in which it may say it wrongly."""
    for model in sorted(models.iterdir()):
        yield model, "config.json", fuzz.config_mutations(model / "config.json")
        if (model / WEIGHTS).exists():
            yield model, WEIGHTS, fuzz.header_mutations(model / WEIGHTS)
        if (model / "entropy_model").exists():
            path = model / "entropy_model" / "params.json"
            yield model, "entropy_model/params.json", fuzz.config_mutations(path)
        if (model / INDEX).exists():
            yield model, INDEX, fuzz.config_mutations(model / INDEX)


@pytest.fixture(autouse=True)
def alarm():
    def ring(*_):
        raise TimeoutError("too long")

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def known_arrays(monkeypatch):
    """Orbax takes its time to tell what is stored, which no mutation of a config changes."""
    monkeypatch.setattr(orbax.ocp, "metadata", functools.cache(orbax.ocp.metadata))


@pytest.mark.exhaustive
@pytest.mark.slow  # a minute
def test_all_mutations_and_random_bytes(models, known_arrays):
    tally, rng = fuzz.Tally(), random.Random(0)
    for model, file, contents in targets(models):
        fuzz.attack(model, file, contents, tally=tally)
        within = 4096 if file == WEIGHTS else None
        noise = fuzz.random_bytes(model / file, rng, within=within)
        fuzz.attack(model, file, itertools.islice(noise, 1000), tally=tally)
    print(tally)
    assert tally.tried >= 20_000 and tally.refused > tally.accepted > 0


@pytest.mark.slow  # 30 s
def test_what_is_accepted_can_be_read(models):
    """Accepted configs are those of the tensors: reading them raises nothing either."""
    tally = fuzz.Tally()
    for model, file, contents in targets(models):
        if file == "config.json":
            contents = itertools.islice(contents, 3, None, 17)
            fuzz.attack(model, file, contents, tally=tally, read=checkpoints.read)
    assert tally.accepted


@pytest.mark.slow  # 30 s
def test_heads_in_a_directory_of_their_own(tmp_path):
    checkpoints.write_heads(tmp_path, HEADS, random_params(HEADS, dtype=jnp.bfloat16))
    tally, rng = fuzz.Tally(), random.Random(0)
    read = functools.partial(checkpoints.read_heads, config=BYTE_LM)
    for file, mutations in (
        ("config.json", fuzz.config_mutations),
        (WEIGHTS, fuzz.header_mutations),
    ):
        noise = fuzz.random_bytes(tmp_path / file, rng, within=4096)
        contents = itertools.chain(mutations(tmp_path / file), itertools.islice(noise, 500))
        fuzz.attack(tmp_path, file, contents, tally=tally, read=read)
    print(tally)
    assert tally.tried >= 2000 and tally.refused > tally.accepted > 0


# --- the ones of a review, each by name ---


def config_with(model, tmp_path, *place, value):
    """A copy of a model with one value of its config replaced."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in model.iterdir():
        (copy / file.name).symlink_to(file)
    (copy / "config.json").unlink()
    fields = json.loads((model / "config.json").read_text())
    node = fields
    for name in place[:-1]:
        node = node[name]
    node[place[-1]] = value
    (copy / "config.json").write_text(json.dumps(fields))
    return copy


@pytest.mark.parametrize(
    ("model", "place", "value", "says"),
    [
        ("huggingface-blt", "encoder_config.num_attention_heads", 0, "num_attention_heads must be"),
        ("huggingface-blt", "encoder_config.hidden_size", "wide", "encoder_config.hidden_size is"),
        ("huggingface-blt", "encoder_config.rope_parameters", [1], "rope_parameters is a list"),
        ("huggingface-lm", "bytelax", None, "is a mistral of 261 ids, and no tokenizer file says"),
        ("meta-blt", "args.n_heads_global", 0, "global_transformer: heads must be at least 1"),
        ("meta-blt", "args.dim_global", "x", "dim_global is 'x' where a whole number belongs"),
        ("meta-blt", "args.rope_theta", float("nan"), "rope_theta must be finite, got nan"),
        ("orbax-blt", "config", 5, "is 5 where an object belongs"),
        ("orbax-blt", "config.encoder", 5, "encoder is 5 where an object belongs"),
        ("orbax-blt", "kind", [], "an unknown kind []"),
        ("orbax-lm", "config.heads", {}, "has a parameter heads/"),
        ("orbax-lm", "config.heads.medusa.count", 10**9, "heads.medusa.count is 1000000000"),
        ("orbax-blt", "config.encoder.layers", 10**12, "encoder.layers does not fit in 32 bits"),
        ("orbax-blt", "config.encoder.layers", 10**9, "encoder.layers is 1000000000, of"),
        ("orbax-blt", "config.encoder.norm_eps", 0.0, "encoder: norm_eps must be positive"),
        ("orbax-blt", "config.encoder.rope_theta", -1, "encoder: rope_theta must be positive"),
        ("orbax-blt", "config.patching.threshold_add", float("inf"), "must be finite, got inf"),
        ("orbax-blt", "config.max_bytes", 2_000_000_000, "max_bytes must lie in 2..16777216"),
    ],
)
def test_a_config_is_refused_by_the_name_of_its_field(models, tmp_path, model, place, value, says):
    with pytest.raises(checkpoints.CheckpointError) as error:
        checkpoints.read(config_with(models / model, tmp_path, *place.split("."), value=value))
    assert says in str(error.value)
