"""Small random models that the tests of decoding share.

Their weights are large for their size, so that a wrong byte anywhere is heard in every logit and
the two likeliest ids are close.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict

from bytelax import architectures, checkpoints, vocab
from bytelax.architectures import module_of
from bytelax.model import Model
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import RopeScaling, TransformerConfig
from bytelax.models.execution import EXACT
from bytelax.models.patching import PatchingConfig, next_byte_entropy


def stack(dim, layers, **fields):
    sizes = {"heads": 2, "kv_heads": 2, "head_dim": 8, "ffn_dim": 2 * dim}
    return TransformerConfig(dim=dim, layers=layers, **(sizes | fields))


def replace(config, **fields):
    """Like `dataclasses.replace`; `encoder={...}` replaces fields of the encoder's config."""
    parts = {
        name: dataclasses.replace(getattr(config, name), **value)
        if isinstance(value, dict)
        else value
        for name, value in fields.items()
    }
    return dataclasses.replace(config, **parts)


def without_specials(logits):
    """The logits of bytes and EOS; -inf for ids that are never emitted."""
    never = np.isin(np.arange(logits.shape[-1]), [vocab.BOE, vocab.BOS, vocab.MASK])
    return np.where(never, -np.inf, logits)


SCALE = 4.0  # times the usual 0.05
PATCHER = ByteLMConfig(trunk=stack(16, 1, window=7, rope_theta=1e4), mask_documents=True)
# Windows shorter than any text, grouped queries, documents, a projection into the global model.
BASE = BLTConfig(
    encoder=stack(16, 1, kv_heads=1, window=5),
    global_transformer=stack(24, 1, kv_heads=1),
    decoder=stack(16, 2, kv_heads=1, window=6),
    patching=PatchingConfig(),
    patcher=PATCHER,
    hashing=HashConfig(groups=(2, 5), vocab=53, functions=2),
    mask_documents=True,
    max_bytes=1024,
)
PLAIN = replace(
    BASE,
    encoder={"window": None, "kv_heads": 2},
    global_transformer={"dim": 32, "kv_heads": 2},
    decoder={"window": None, "kv_heads": 2, "layers": 1},
    patcher=ByteLMConfig(trunk=stack(16, 1)),
    mask_documents=False,
)
VARIANTS = {
    "base": BASE,
    "plain": PLAIN,
    "cut": replace(
        BASE,
        patching={"max_patch_length": 3},
        decoder_cross_attention="first",
        patch_vectors=4,
        global_transformer={"window": 3},
    ),
    "own_embedding": replace(
        BASE, patching={"monotonicity": True}, decoder={"dim": 24}, decoder_input="embedding"
    ),
    "stride": replace(BASE, patching={"mode": "stride", "stride": 4}, patcher=None),
    "bytes": replace(BASE, patching={"mode": "byte"}, patcher=None),
}
BYTE_LM = ByteLMConfig(trunk=stack(24, 2, kv_heads=1), max_bytes=1024)
SMALLEST = replace(BYTE_LM, trunk={"layers": 1})  # whose programs many modules share
BYTE_LMS = {
    "plain": BYTE_LM,
    "window": replace(BYTE_LM, trunk={"window": 6}),
    "documents": replace(BYTE_LM, trunk={"window": 9}, mask_documents=True),
    "qwen": replace(
        BYTE_LM,
        trunk={
            "window": 9,
            "biases": "all",
            "qk_norm": True,
            "rope_scaling": RopeScaling(kind="llama3", factor=2.0, original_positions=8),
        },
        bos=False,
    ),
}


def random_text(rows, length, seed=0, *, eos=True):
    """i32[rows, length]: random bytes behind a BOS, with an EOS here and there."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(vocab.OFFSET, vocab.SIZE, (rows, length), np.int32)
    if eos:
        ids[rng.random(ids.shape) < 0.03] = vocab.EOS
    ids[:, 0] = vocab.BOS
    return ids


# The order in which weights of heads are drawn: outputs are recorded of models that were made so.
_ORDER = ("medusa", "dflash", "eagle", "early_exit", "two_byte", "blt_d", "blt_s")


def numbered(params):
    """The parameters with numbers in place of the names of heads, by which a tree is in order."""
    if "heads" not in params:
        return params
    heads = {str(_ORDER.index(name)): part for name, part in params["heads"].items()}
    return params | {"heads": heads}


def unnumbered(params):
    """The parameters with names of heads again."""
    if "heads" not in params:
        return params
    return params | {"heads": {_ORDER[int(n)]: part for n, part in params["heads"].items()}}


@functools.cache
def shapes(config):
    """The parameters by the table of stored tensors, for which no pass has to be traced."""
    table = architectures.parameters(config)
    return unflatten_dict(
        {path: jax.ShapeDtypeStruct(one.shape, np.float32) for path, one in table.items()}, sep="/"
    )


@functools.cache
def model(config, dtype="float32", *, seed=0, scale=SCALE):
    """A random model whose patcher's threshold ends about a third of a random text's patches."""
    module = module_of(config)
    ids = random_text(1, 256, seed=99, eos=False) % config.vocab_size
    ids = np.maximum(ids, vocab.BOS)
    rng = np.random.default_rng(seed)

    def weight(path, leaf):
        if leaf.ndim == 1:
            return 1 + 0.25 * rng.standard_normal(leaf.shape, np.float32)
        return scale * 0.05 * rng.standard_normal(leaf.shape, np.float32)

    params = jax.tree_util.tree_map_with_path(weight, numbered(shapes(config)))
    params = unnumbered(params)
    patcher = params.pop("patcher", None)
    # Nothing is compiled for a copy, and for `jnp.asarray` a program of each shape.
    params = jax.device_put(jax.tree.map(lambda x: x.astype(jnp.dtype(dtype)), params))
    if patcher is not None:
        params["patcher"] = jax.device_put(patcher)
        config = dataclasses.replace(config, patching=_calibrated(config, params["patcher"], ids))
        module = BLT(config)
    return Model(module, params)


def _calibrated(config, patcher, ids):
    """Thresholds in the widest gap among the upper middle of what the rule compares."""
    rule = config.patching
    entropies = np.asarray(_entropies(ByteLM(config.patcher, EXACT), patcher, ids))[0]
    compared = np.diff(entropies) if rule.monotonicity else entropies
    compared = np.sort(compared)[len(compared) * 6 // 10 : len(compared) * 8 // 10]
    widest = np.diff(compared).argmax()
    return dataclasses.replace(rule, threshold=float(compared[widest : widest + 2].mean()))


@functools.partial(jax.jit, static_argnums=0)
def _entropies(module, patcher, ids):
    return next_byte_entropy(module.apply({"params": patcher}, ids))


def louder_tables(params, scale):
    """Parameters as `init` draws them, with larger embeddings and heads."""

    def louder(path, leaf):
        names = {key.key for key in path}
        return leaf * scale if names & {"embed", "hash_embed", "head"} else leaf

    return jax.tree_util.tree_map_with_path(louder, params)


def chain(text, *, loop=True):
    """A byte transformer that writes `text` over and over, or once and then an EOS.

    All ids of `text` must differ: the next id depends on the last one alone, and whatever is not
    part of it leads to its beginning. Chains are `SMALLEST`.
    """
    ids = vocab.encode(text, bos=False)
    dim = SMALLEST.trunk.dim
    assert len(set(ids)) == len(ids) < dim
    base = model(SMALLEST)
    silent = {"out", "down"}  # without them a block adds nothing to its input

    def silenced(path, x):
        is_silent = silent & {key.key for key in path}
        return jax.device_put(np.zeros(x.shape, x.dtype)) if is_silent else x

    params = jax.tree_util.tree_map_with_path(silenced, base.params)
    follows = dict(zip(ids, [*ids[1:], ids[0] if loop else vocab.EOS], strict=True))
    embedding = np.zeros((vocab.SIZE, dim), np.float32)
    embedding[:, len(ids)] = 1
    head = np.zeros((dim, vocab.SIZE), np.float32)
    head[len(ids), ids[0]] = 9
    for state, (last, following) in enumerate(follows.items()):
        embedding[last] = np.eye(dim)[state]
        head[state, following] = 9
    params["embed"]["embedding"] = jax.device_put(embedding)
    params["head"]["kernel"] = jax.device_put(head)
    params["norm"]["scale"] = jax.device_put(np.ones(dim, np.float32))
    return Model(base.module, params)


def broken_after(byte, model, value=np.nan):
    """A byte transformer like this one, whose logits after a byte are NaN, or infinite."""
    table = model.params["embed"]["embedding"].at[vocab.OFFSET + ord(byte)].set(value)
    return Model(model.module, model.params | {"embed": {"embedding": table}})


def saved(model, directory, layout="huggingface"):
    """Writes a model; returns its directory as a command line names it."""
    checkpoints.write(directory, model.config, model.params, layout=layout)
    return str(directory)
