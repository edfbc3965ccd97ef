"""The named methods: a table of factories, each from a model and options to a `Method`.

The options of a method are the keywords of its factory. The command-line flags, `bytelax methods`
and docs/methods.md are generated from the signatures and docstrings.
"""

import dataclasses
import inspect
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import jax
import jax.numpy as jnp

from bytelax import options as o
from bytelax import vocab
from bytelax.decode import unmasking
from bytelax.decode.acceptance import Acceptance, Lossless, take_all
from bytelax.decode.drafters import (
    BlockDiffusion,
    BlockInOrder,
    DraftBlock,
    DraftLayer,
    DraftModel,
    EarlyExit,
    LayerSkip,
    Lookup,
    MultiByte,
    MultiByteTree,
    ParallelDrafts,
    PastBoundary,
    TwoByte,
)
from bytelax.decode.drafters.base import TargetError
from bytelax.decode.method import Method
from bytelax.decode.nested import Nested
from bytelax.decode.targets.blt import BLTTarget
from bytelax.decode.unmasking import Unmask
from bytelax.loading import load
from bytelax.model import Model
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.heads import HeadsConfig
from bytelax.options import Option, fits, option_of


def ar(model: Model, *, synchronous: o.Synchronous = 0.0) -> Method:
    """Plain autoregressive decoding, one byte per round.

    The rows of a BLT's batch close their patches at different bytes, so in most rounds some row
    needs the global transformer. With `synchronous`, rows that have closed a patch wait for the
    others; with 1, until every running row has closed one.
    """
    target = model.target()
    if synchronous:
        if not isinstance(target, BLTTarget):
            raise ValueError("ar, synchronous, needs a Byte Latent Transformer, not a byte model")
        target = dataclasses.replace(target, synchronous=float(synchronous))
    return Method(target)


def lookup(model: Model, *, draft_length: o.DraftLength = 8) -> Method:
    """Prompt lookup: copies what followed an earlier occurrence of the last bytes. Lossless."""
    return Method(model.target(), Lookup(_length(model, draft_length)))


def draft_model(
    model: Model, *, draft_model: o.SmallModel, draft_length: o.DraftLength = 4
) -> Method:
    """A smaller model drafts byte by byte (speculative decoding). Lossless."""
    assert isinstance(draft_model, Model)  # `build` loads it
    drafter = DraftModel(draft_model.target(), _length(model, draft_length))
    return Method(model.target(), drafter)


def spectr(
    model: Model,
    *,
    draft_model: o.SmallModel,
    drafts: o.Drafts = 2,
    draft_length: Annotated[int, Option("Number of bytes in each draft.")] = 4,
) -> Method:
    """A draft model proposes several drafts; optimal transport selects one (SpecTr). Lossless.

    Under greedy sampling all drafts are equal, so the output is that of `draft-model` at a higher
    cost.
    """
    _byte_lm(model, "spectr")
    assert isinstance(draft_model, Model)  # `build` loads it
    one = DraftModel(draft_model.target(), _length(model, draft_length))
    return Method(model.target(), ParallelDrafts(one, drafts))


def blt_s(model: Model, *, draft_length: o.DraftLength = 8, latent: o.Latent = "reuse") -> Method:
    """The local decoder of a BLT drafts past its patch, and a full pass verifies. Lossless."""
    drafter = PastBoundary(_length(model, draft_length), cast(Any, latent))
    return Method(model.target(), drafter)


def nested(
    model: Model, *, draft_length: o.DraftLength = 8, draft_with: o.DraftWith = "lookup"
) -> Method:
    """BLT-S whose own drafting is speculative: a cheaper drafter drafts for the decoder. Lossless.

    The local decoder verifies several bytes in a pass, and what it keeps is the draft that the
    whole BLT verifies. "medusa" needs multi-byte heads.
    """
    length = _length(model, draft_length)
    if draft_with == "lookup":
        return Method(model.target(), Nested(length, Lookup(min(4, length))))
    heads = model.config.heads or HeadsConfig()
    if not heads.bytes_ahead:
        raise ValueError("the model has no multi-byte heads; `bytelax train heads` trains them")
    return Method(model.target(), Nested(length, MultiByte(min(heads.bytes_ahead, length))))


def blt_d(
    model: Model,
    *,
    block_size: o.BlockSize = 8,
    unmask: o.UnmaskBy = "confidence",
    alpha: o.Alpha = None,
    gamma: o.Gamma = None,
) -> Method:
    """Block diffusion: the decoder fills blocks of masked bytes, and all are kept. Not lossless."""
    rule = unmasking_rule(unmask, alpha=alpha, gamma=gamma)
    drafter = BlockDiffusion(_block(model, "blt-d", block_size), rule, latent="ahead")
    return Method(model.target(), drafter, take_all)


def blt_dv(
    model: Model,
    *,
    block_size: o.BlockSize = 8,
    unmask: o.UnmaskBy = "one-step",
    alpha: o.Alpha = None,
    gamma: o.Gamma = None,
    latent: o.Latent = "reuse",
    table: o.Table = None,
) -> Method:
    """Block diffusion with verification: the model verifies the blocks that it fills. Lossless.

    A block table, which `bytelax train heads` trains, makes each byte of a block depend on the one
    before it.
    """
    rule = unmasking_rule(unmask, alpha=alpha, gamma=gamma)
    size = _block(model, "blt-dv", block_size)
    one_step = rule == unmasking.ONE_STEP
    if table and not one_step:
        raise ValueError("the block table fills a block in one pass: it needs unmask='one-step'")
    heads = model.config.heads or HeadsConfig()
    if table or (table is None and one_step and heads.block_table):
        return Method(model.target(), BlockInOrder(size, latent=cast(Any, latent)))
    return Method(model.target(), BlockDiffusion(size, rule, latent=cast(Any, latent)))


def early_exit(
    model: Model,
    *,
    exit_layer: o.ExitLayer = None,
    exit_head: o.ExitHead = None,
    draft_length: o.DraftLength = 4,
    verify_from: o.VerifyFrom = None,
) -> Method:
    """Early exit: the first layers draft, and all of them verify. Lossless.

    With `verify_from` "exit", verification continues from the states that drafting computed. They
    differ from those of a wider window by rounding only; this is the default in float32. With
    "embedding", all layers are computed again, so that the output equals that of plain decoding in
    the same windows to the last bit. This is the default in narrower dtypes, where rounding changes
    bytes.
    """
    exit = _exit(model, "early-exit", exit_layer, exit_head)
    length, hand_over = _length(model, draft_length), _hands_over(model, verify_from)
    return Method(model.target(), EarlyExit(length, **exit, hand_over=hand_over))


def composed(
    model: Model,
    *,
    exit_layer: o.ExitLayer = None,
    draft_length: o.DraftLength = 4,
    verify_from: o.VerifyFrom = None,
) -> Method:
    """Early exit with a two-byte head, so that every pass drafts two bytes. Lossless."""
    exit = _exit(model, "composed", exit_layer, None)
    length, hand_over = _length(model, draft_length), _hands_over(model, verify_from)
    drafter = EarlyExit(length, **exit, two_byte=True, hand_over=hand_over)
    return Method(model.target(), drafter)


def layer_skip(
    model: Model,
    *,
    skip_attention: o.SkipAttention = None,
    skip_mlp: o.SkipMlp = None,
    draft_length: o.DraftLength = 4,
) -> Method:
    """Layer skipping: the model drafts without some of its blocks, and all verify. Lossless.

    By default every second block is skipped, except the first and the last one. `bytelax layers`
    searches for a better selection.
    """
    _byte_lm(model, "layer-skip")
    if skip_attention is None and skip_mlp is None:
        skip_attention = skip_mlp = tuple(range(1, model.config.trunk.layers - 1, 2))
    skipped = tuple(skip_attention or ()), tuple(skip_mlp or ())
    return Method(model.target(), LayerSkip(_length(model, draft_length), *skipped))


def medusa(
    model: Model,
    *,
    draft_length: Annotated[
        int | None, Option("Number of heads to draft with; all by default.")
    ] = None,
    branches: o.Branches = None,
    nodes: o.Nodes = 16,
) -> Method:
    """Medusa: multi-byte heads draft all bytes at once, as a chain or a tree. Lossless.

    With `branches` the draft is a tree.
    """
    heads = model.config.heads or HeadsConfig()
    if branches is None:
        length = heads.bytes_ahead if draft_length is None else draft_length
        return Method(model.target(), MultiByte(length))
    if draft_length is not None:
        raise ValueError("a tree takes its depth from branches: no draft_length")
    values = model.config.vocab_size - vocab.OFFSET
    if not branches or nodes < 1 or not all(1 <= children <= values for children in branches):
        raise ValueError(
            f"a node has 1..{values} branches, a tree 1 node or more; got {branches}, nodes {nodes}"
        )
    drafter = MultiByteTree(tuple(branches), min(nodes, _tree_size(branches)))
    return Method(model.target(), drafter)


def two_byte(model: Model, *, state_layer: o.StateLayer = None) -> Method:
    """A two-byte-ahead head drafts the byte after the next one. Lossless."""
    _byte_lm(model, "two-byte")
    drafter = TwoByte(model.config.trunk.layers if state_layer is None else state_layer)
    return Method(model.target(), drafter)


def eagle(
    model: Model,
    *,
    draft_length: o.DraftLength = 6,
    beam: o.Beam = 1,
    nodes: o.Nodes = 16,
    min_survival: o.MinSurvival = None,
) -> Method:
    """EAGLE: one trained layer drafts from features of the whole model. Lossless.

    With a `beam` above 1 it drafts a tree with `draft_length` levels, each of which expands `beam`
    nodes; `nodes` of the tree are verified.
    """
    depth, values = _length(model, draft_length), model.config.vocab_size - vocab.OFFSET
    if not 1 <= beam <= values or nodes < 1:
        raise ValueError(
            f"beam and nodes must be at least 1, beam at most {values}; got {beam} and {nodes}"
        )
    if beam > 1:
        drafter = DraftLayer(min(nodes, beam * depth), beam, depth, min_survival)
    else:
        drafter = DraftLayer(depth, min_survival=min_survival)
    return Method(model.target(), drafter)


def dflash(
    model: Model, *, draft_length: o.BlockLength = None, min_survival: o.MinSurvival = None
) -> Method:
    """DFlash: trained layers on the model's states draft a block in one pass. Lossless.

    By default the block is as long as those of training.
    """
    heads = model.config.heads or HeadsConfig()
    length = heads.draft.block_size if draft_length is None else draft_length
    return Method(model.target(), DraftBlock(_length(model, length), min_survival))


Factory = Callable[..., Method]  # takes the model, and the options of the method as keywords

METHODS: dict[str, Factory] = {
    "ar": ar,
    "blt-s": blt_s,
    "nested": nested,
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
    "dflash": dflash,
}


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """Returns the options of a named method; the `annotation` of each ends with an `Option`.

    Raises:
      ValueError: there is no method of this name.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f"unknown method {name!r}; there are: {', '.join(METHODS)}")
    parameters = inspect.signature(METHODS[name]).parameters
    return {option: each for option, each in parameters.items() if option != "model"}


def build(
    method: str | Method,
    model: Model,
    /,
    *,
    accept: Acceptance | Lossless | None = None,
    window: int | None = None,
    **options,
) -> tuple[Method, Any]:
    """Builds a named method for a model; returns it with the parameters of its drafter.

    Args:
      method: a name, or a `Method`, which is checked and returned.
      model: the target model. A draft model is put on the same mesh, and loaded if given as a path.
      accept: acceptance rule to use in place of the method's own.
      window: number of bytes to pad every verified window to; None leaves it as it is.
      **options: options of the method; None selects the default.

    Raises:
      ValueError: there is no such method, it does not take an option, or an option is missing or
        out of range.
    """
    options = {option: value for option, value in options.items() if value is not None}
    if isinstance(method, Method):
        if options:
            raise ValueError(f"{', '.join(options)}: only named methods take options")
        if getattr(method.target, "module", None) not in (None, model.device_shard.module):
            raise ValueError("this Method was built for another model")
    else:
        known = options_of(method)
        _check(method, known, options)
        small = options.get("draft_model")
        if isinstance(small, str | Path):
            small = load(small)
        if small is not None:
            options["draft_model"] = small if model.mesh is None else small.on(model.mesh)
        try:
            method = METHODS[method](model, **options)
        except TargetError as error:
            raise TargetError(str(method), error.needs) from None
        except ValueError as error:
            raise ValueError(f"{error} (method {method!r})") from None
    if window is not None:
        method = dataclasses.replace(method, window=window)
    if not (accept is None or callable(accept) or isinstance(accept, Lossless)):
        raise ValueError(f"accept is a function that judges drafts, got {accept!r}")
    if accept is not None:
        method = dataclasses.replace(method, accept=accept)
    small = options.get("draft_model")
    return method, () if small is None else small.device_params


def unmasking_rule(unmask: str | Unmask, *, alpha: float | None, gamma: float | None) -> Unmask:
    """Returns the unmasking rule of this name, or `unmask` itself if it is a function.

    The names are "confidence", "entropy", "entropy-minus-max" and "one-step".

    Raises:
      ValueError: a bound was given that the rule does not have.
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
            raise ValueError(f"{option} cannot be {reprlib.repr(value)}; see `bytelax methods`")
        choices = option_of(known[option]).choices
        if choices and isinstance(value, str) and value not in choices:
            raise ValueError(f"{option} {value!r} is not one of {', '.join(choices)}")
    for option, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and option not in options:
            raise ValueError(f"method {name!r} needs {option}")


def _length(model: Model, length: int) -> int:
    """Returns the draft length; raises ValueError if the model cannot hold such a draft."""
    limit = model.config.max_bytes - 1
    if not 1 <= length <= limit:
        raise ValueError(f"draft_length must lie in 1..{limit}, got {length}")
    return length


def _block(model: Model, method: str, size: int) -> int:
    """Returns the block size; raises ValueError if the model was not trained on it."""
    if not isinstance(model.config, BLTConfig):
        raise TargetError(method, "a Byte Latent Transformer, not a byte transformer")
    trained = model.config.block_size
    if not trained:
        raise ValueError(
            f"method {method!r} needs a model trained to fill in masked bytes (`bytelax train "
            "blt-d`); this one was not"
        )
    if not 1 <= size <= trained:
        raise ValueError(f"the model was trained on blocks of up to {trained}, got {size}")
    return size


def _byte_lm(model: Model, method: str) -> HeadsConfig:
    """Returns the heads of a byte transformer; raises ValueError for any other model."""
    if not isinstance(model.config, ByteLMConfig):
        raise TargetError(method, "a byte transformer, not a Byte Latent Transformer")
    return model.config.heads or HeadsConfig()


def _exit(model: Model, method: str, layer: int | None, head: bool | None) -> dict:
    """Returns the layer and the head of an early exit.

    The default is the exit head nearest to half the depth, or half the depth if there is no exit
    head.
    """
    exits = _byte_lm(model, method).exits
    assert isinstance(model.config, ByteLMConfig)
    half = max(model.config.trunk.layers // 2, 1)
    if layer is None:
        layer = min(exits or (half,), key=lambda layer: abs(layer - half))
    return {"layer": layer, "head": layer in exits if head is None else head}


def _hands_over(model: Model, verify_from: str | None) -> bool:
    """Whether verification continues from the exit's states; by default only in float32.

    In narrower dtypes these states would give other bytes than plain decoding.
    """
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
