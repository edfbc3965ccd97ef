"""The named methods: a table of factories, from a model and options to a `Method`.

A method's options are the keywords of its factory. The flags of the command line, `bytelax methods`
and docs/methods.md are made from these signatures.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from bytelax import options as o
from bytelax import vocab
from bytelax.decode import unmasking
from bytelax.decode.acceptance import Acceptance, take_all
from bytelax.decode.drafters import (
    BlockDiffusion,
    DraftLayer,
    DraftModel,
    EarlyExit,
    LayerSkip,
    Lookup,
    MultiByte,
    MultiByteTree,
    PastBoundary,
    Several,
    TwoByte,
)
from bytelax.decode.method import Method
from bytelax.decode.targets.blt import BLTTarget
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.decode.unmasking import Unmask
from bytelax.loading import load
from bytelax.model import Model
from bytelax.models.heads import HeadsConfig
from bytelax.options import Option, fits, option_of, verified


def ar(model: Model, *, window: o.Window = None, synchronous: o.Synchronous = 0.0) -> Method:
    """Plain autoregressive decoding, one byte a round.

    The rows of a BLT's batch close their patches at different bytes, so some row needs the global
    transformer at nearly every one. With `synchronous`, rows that have closed a patch wait for the
    others: 1 is for all of them.
    """
    target = model.target()
    if synchronous:
        if not isinstance(target, BLTTarget):
            raise ValueError("ar, synchronous, needs a Byte Latent Transformer, not a byte model")
        target = dataclasses.replace(target, synchronous=float(synchronous))
    return Method(target, window=window)


@verified(thresholds=False)
def lookup(
    model, *, draft_length: o.DraftLength = 8, shortest: o.Shortest = 4, longest: o.Longest = 16
):
    """Copy what followed the last time the text ended like this. Lossless."""
    return Lookup(_longest(model, draft_length), shortest, longest)


@verified()
def draft_model(model, *, draft_model: o.SmallModel, draft_length: o.DraftLength = 4):
    """A smaller model drafts, byte by byte. Lossless."""
    return DraftModel(draft_model.target(), _longest(model, draft_length))


def spectr(
    model: Model,
    *,
    draft_model: o.SmallModel,
    drafts: o.Drafts = 2,
    draft_length: Annotated[int, Option("Bytes of each draft.")] = 4,
) -> Method:
    """A draft model makes several drafts, optimal transport chooses among them. Lossless.

    Greedy drafts are all alike: there it does what `draft-model` does, at a higher price.
    """
    _byte_lm(model, "spectr")
    one = DraftModel(draft_model.target(), _longest(model, draft_length))
    return Method(model.target(), Several(one, drafts))


@verified()
def blt_s(
    model,
    *,
    draft_length: o.DraftLength = 8,
    latent: o.Latent = "reuse",
    draft_layers: o.DraftLayers = None,
):
    """A BLT's local decoder drafts past its patch, a full pass verifies. Lossless."""
    return PastBoundary(_longest(model, draft_length), latent, draft_layers)


def blt_d(
    model: Model,
    *,
    block_size: o.BlockSize = 8,
    unmask: o.UnmaskBy = "confidence",
    alpha: o.Alpha = None,
    gamma: o.Gamma = None,
    open_patch: o.OpenPatch = "latest",
) -> Method:
    """Blocks of masked bytes, filled by the decoder and kept as they are. Not lossless."""
    if isinstance(block_size, Mapping):
        raise ValueError(f"blt-d keeps its blocks whole: block_size is a number, got {block_size}")
    drafter = BlockDiffusion(
        _block(model, "blt-d", block_size),
        unmasking_rule(unmask, alpha=alpha, gamma=gamma),
        latent="ahead",
        open_patch="truncated" if open_patch == "truncated" else "latest",
        finish=open_patch == "finish",
    )
    return Method(model.target(), drafter, take_all)


@verified()
def blt_dv(
    model,
    *,
    block_size: o.BlockSize = 8,
    unmask: o.UnmaskBy = "one-step",
    alpha: o.Alpha = None,
    gamma: o.Gamma = None,
    latent: o.Latent = "reuse",
):
    """Blocks of masked bytes, filled by the decoder and verified by the same model. Lossless.

    Of a table of block sizes the longest is drafted, and its beginning verified.
    """
    rule = unmasking_rule(unmask, alpha=alpha, gamma=gamma)
    return BlockDiffusion(_block(model, "blt-dv", block_size), rule, latent=latent)


@verified()
def early_exit(
    model,
    *,
    exit_layer: o.ExitLayer = None,
    exit_head: o.ExitHead = None,
    draft_length: o.DraftLength = 4,
    verify_from: o.VerifyFrom = None,
):
    """The first layers draft, all of them verify. Lossless.

    `verify_from` "exit" goes on from the states that drafting computed, which differ from those of
    a wider window by rounding: the default in float32. "embedding" computes all layers again, and
    then the output equals plain decoding's in the same windows to the last bit: the default in
    narrower dtypes, in which rounding changes bytes.
    """
    exit = _exit(model, "early-exit", exit_layer, exit_head)
    return EarlyExit(
        _longest(model, draft_length), **exit, hand_over=_hands_over(model, verify_from)
    )


@verified()
def composed(
    model,
    *,
    exit_layer: o.ExitLayer = None,
    draft_length: o.DraftLength = 4,
    verify_from: o.VerifyFrom = None,
):
    """Early exit whose every pass drafts two bytes, the second by a two-byte head. Lossless."""
    exit = _exit(model, "composed", exit_layer, None)
    length, hand_over = _longest(model, draft_length), _hands_over(model, verify_from)
    return EarlyExit(length, **exit, two_byte=True, hand_over=hand_over)


@verified()
def layer_skip(
    model,
    *,
    skip_attention: o.SkipAttention = None,
    skip_mlp: o.SkipMlp = None,
    draft_length: o.DraftLength = 4,
):
    """The model drafts with some blocks skipped. Lossless.

    By default every second one is skipped whole, but for the first and last; `bytelax layers`
    searches for better ones.
    """
    _byte_lm(model, "layer-skip")
    if skip_attention is None and skip_mlp is None:
        skip_attention = skip_mlp = tuple(range(1, model.config.trunk.layers - 1, 2))
    skipped = tuple(skip_attention or ()), tuple(skip_mlp or ())
    return LayerSkip(_longest(model, draft_length), *skipped)


@verified()
def medusa(
    model,
    *,
    draft_length: Annotated[int | None, Option("Heads to draft with; all by default.")] = None,
    branches: o.Branches = None,
    nodes: o.Nodes = 16,
):
    """Multi-byte heads draft at once: a chain, or a tree with `branches` children. Lossless."""
    heads = _byte_lm(model, "medusa")
    if branches is None:
        return MultiByte(heads.bytes_ahead if draft_length is None else draft_length)
    if draft_length is not None:
        raise ValueError("a tree takes its depth from branches: no draft_length")
    values = model.config.vocab_size - vocab.OFFSET
    if not branches or nodes < 1 or not all(1 <= children <= values for children in branches):
        raise ValueError(
            f"a node has 1..{values} branches, a tree 1 node or more; got {branches}, nodes {nodes}"
        )
    return MultiByteTree(tuple(branches), min(nodes, _tree_size(branches)))


@verified(thresholds=False)
def two_byte(model, *, state_layer: o.StateLayer = None):
    """A head on a state and the next byte drafts the byte after it. Lossless."""
    _byte_lm(model, "two-byte")
    return TwoByte(model.config.trunk.layers if state_layer is None else state_layer)


@verified()
def eagle(model, *, draft_length: o.DraftLength = 6, beam: o.Beam = 1, nodes: o.Nodes = 16):
    """One trained layer on the features of the whole model drafts. Lossless.

    With a `beam` of more than 1 it drafts a tree of `nodes`, as deep as `draft_length`, at each
    level of which that many nodes go on.
    """
    _byte_lm(model, "eagle")
    depth = _longest(model, draft_length)
    if beam < 1 or nodes < 1:
        raise ValueError(f"beam and nodes must be at least 1, got {beam} and {nodes}")
    return DraftLayer(min(nodes, beam * depth), beam, depth) if beam > 1 else DraftLayer(depth)


Factory = Callable[..., Method]  # takes the model; its keywords are the options of the method

METHODS: dict[str, Factory] = {
    "ar": ar,
    "blt-s": blt_s,
    "blt-d": blt_d,
    "blt-dv": blt_dv,
    "lookup": lookup,
    "draft-model": draft_model,
    "spectr": spectr,
    "early-exit": early_exit,
    "layer-skip": layer_skip,
    "medusa": medusa,
    "two-byte": two_byte,
    "composed": composed,
    "eagle": eagle,
}


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """The options that a named method takes. Their `annotation` ends with an `Option`.

    Raises:
      ValueError: no such method.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; there are: {', '.join(METHODS)}")
    parameters = inspect.signature(METHODS[name]).parameters
    return {option: each for option, each in parameters.items() if option != "model"}


def build(
    method: str | Method,
    model: Model,
    *,
    accept: Acceptance | None = None,
    **options,
) -> tuple[Method, Any]:
    """The method of that name for a model, and the parameters of its drafter.

    Args:
      method: a name; or a method, which is checked and returned.
      model: the target's. A draft model is put on its mesh, and loaded if a path was given.
      accept: an acceptance rule in place of the method's own.
      **options: of the method; None is its default.

    Raises:
      ValueError: no such method, an option that it does not take, or one that it needs or that is
        out of range.
    """
    options = {option: value for option, value in options.items() if value is not None}
    if isinstance(method, Method):
        if options:
            raise ValueError(f"{', '.join(options)}: only named methods take options")
        if getattr(method.target, "module", None) not in (None, model.target().module):
            raise ValueError("this Method was built for another model")
    else:
        known = options_of(method)
        _check(method, known, options)
        small = options.get("draft_model")
        if isinstance(small, str | Path):
            small = load(small)
        if small is not None:
            options["draft_model"] = small if model.mesh is None else small.on(model.mesh)
        method = METHODS[method](model, **options)
    if accept is not None:
        method = dataclasses.replace(method, accept=accept)
    small = options.get("draft_model")
    return method, () if small is None else small.params


def unmasking_rule(unmask: str | Unmask, *, alpha: float | None, gamma: float | None) -> Unmask:
    """The rule called "confidence", "entropy", "entropy-minus-max" or "one-step"; or one's own.

    Raises:
      ValueError: a bound that the rule does not have.
    """
    if alpha is not None and unmask != "confidence":
        raise ValueError(f"alpha belongs to unmask='confidence', not to {unmask!r}")
    if gamma is not None and unmask not in ("entropy", "entropy-minus-max"):
        raise ValueError(f"gamma belongs to unmask='entropy', not to {unmask!r}")
    if not isinstance(unmask, str):
        return unmask
    if unmask == "one-step":
        return unmasking.ONE_STEP
    if unmask == "confidence":
        return unmasking.confidence() if alpha is None else unmasking.confidence(alpha)
    bound = {} if gamma is None else {"gamma": gamma}
    return unmasking.entropy_bound(**bound, but_one=unmask == "entropy-minus-max")


def _check(name: str, known: dict[str, inspect.Parameter], options: dict) -> None:
    for option, value in options.items():
        if option not in known:
            raise ValueError(
                f"method {name!r} takes no {option!r}; its options: {', '.join(known)}"
            )
        if not fits(value, known[option]):
            raise ValueError(f"{option} cannot be {value!r}; see `bytelax methods`")
        choices = option_of(known[option]).choices
        if choices and isinstance(value, str) and value not in choices:
            raise ValueError(f"{option} {value!r} is not one of {', '.join(choices)}")
    for option, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise ValueError(f"method {name!r} needs {option}")


def _most(length: o.Length) -> int:
    return max(length.values(), default=0) if isinstance(length, Mapping) else length


def _longest(model: Model, length: o.Length) -> int:
    """The longest draft: at least a byte, and no more than the model can hold."""
    limit = model.config.max_bytes - 1
    if not 1 <= _most(length) <= limit:
        raise ValueError(f"draft_length must lie in 1..{limit}, got {length}")
    return _most(length)


def _block(model: Model, method: str, size: o.Length) -> int:
    """The longest block, of those that the model was trained on."""
    if not isinstance(model.target(), BLTTarget):
        raise ValueError(f"method {method!r} needs a Byte Latent Transformer, not a byte model")
    trained = model.config.block_size
    if not trained:
        raise ValueError(
            f"method {method!r} needs a model trained to fill in masked bytes (`bytelax train "
            "blt-d`); this one was not"
        )
    if not 1 <= _most(size) <= trained:
        raise ValueError(f"the model was trained on blocks of up to {trained}, got {size}")
    return _most(size)


def _byte_lm(model: Model, method: str) -> HeadsConfig:
    """The heads of a byte transformer."""
    if not isinstance(model.target(), ByteLMTarget):
        raise ValueError(
            f"method {method!r} needs a byte transformer, not a Byte Latent Transformer"
        )
    return model.config.heads or HeadsConfig()


def _exit(model: Model, method: str, layer: int | None, head: bool | None) -> dict:
    """By default the exit head nearest to half the depth; half the depth without one."""
    exits, half = _byte_lm(model, method).exits, max(model.config.trunk.layers // 2, 1)
    if layer is None:
        layer = min(exits or (half,), key=lambda layer: abs(layer - half))
    return {"layer": layer, "head": layer in exits if head is None else head}


def _hands_over(model: Model, verify_from: str | None) -> bool:
    """Whether to verify from an exit's states, which in narrow dtypes write other bytes."""
    exact = all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(model.params))
    if verify_from == "exit" and not exact:
        raise ValueError(
            "verify_from 'exit' needs float32 weights: in a narrower dtype it would write other "
            "bytes than plain decoding; load the model so, or verify from the embedding"
        )
    return exact and verify_from != "embedding"


def _tree_size(branches: tuple[int, ...]) -> int:
    level, nodes = 1, 0
    for children in branches:
        level *= children
        nodes += level
    return nodes
