"""Methods with which a byte transformer drafts for itself, or verifies trees."""

import dataclasses
from collections.abc import Mapping

from bytelax.decode import acceptance
from bytelax.decode.drafters import (
    DraftLayer,
    EarlyExit,
    LayerSkip,
    MultiByte,
    MultiByteTree,
    Several,
    TwoByte,
    padded,
)
from bytelax.decode.sampling import Sampling
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.methods.any_model import small_draft_model
from bytelax.methods.method import (
    Length,
    Method,
    Threshold,
    longest_draft,
    of_length,
    one_of,
    target_of,
    verified,
)
from bytelax.model import Model
from bytelax.models.byte_lm import ByteLM
from bytelax.models.heads import HeadsConfig


def early_exit(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    exit_layer: int | None = None,
    exit_head: bool | None = None,
    draft_length: Length = 4,
    verify_from: str = "exit",
    min_confidence: Threshold | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """The first layers draft, all of them verify. Lossless.

    By default at half the depth, and by an exit head if there is one. `verify_from` "exit" goes on
    from the states that drafting computed; "embedding" computes all layers again, and then the
    output equals plain decoding's in the same windows to the last bit.
    """
    _needs_byte_lm(model, "early-exit")
    target = target_of(model, capacity, longest_draft(model, draft_length), window)
    drafter = _exit(model, target, draft_length, exit_layer, verify_from, head=exit_head)
    drafter = of_length(drafter, draft_length, min_confidence, law)
    return verified(target, drafter, law, verify)


def composed(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    exit_layer: int | None = None,
    draft_length: int = 4,
    verify_from: str = "exit",
    min_confidence: Threshold | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """Early exit whose every pass drafts two bytes, the second by a two-byte head. Lossless."""
    _needs_byte_lm(model, "composed")
    target = target_of(model, capacity, longest_draft(model, draft_length), window)
    drafter = _exit(model, target, draft_length, exit_layer, verify_from, two_byte=True)
    drafter = of_length(drafter, draft_length, min_confidence, law)
    return verified(target, drafter, law, verify)


def layer_skip(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    skip_attention: tuple[int, ...] | None = None,
    skip_mlp: tuple[int, ...] | None = None,
    draft_length: Length = 4,
    min_confidence: Threshold | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """The model drafts with some blocks skipped. Lossless.

    Blocks count from 0. By default every second one is skipped whole, but for the first and last;
    `bytelax layers` searches for better ones.
    """
    _needs_byte_lm(model, "layer-skip")
    width = longest_draft(model, draft_length)
    target = target_of(model, capacity, width, window)
    if skip_attention is None and skip_mlp is None:
        skip_attention = skip_mlp = tuple(range(1, model.config.trunk.layers - 1, 2))
    drafter = LayerSkip(target, width, tuple(skip_attention or ()), tuple(skip_mlp or ()))
    return verified(target, of_length(drafter, draft_length, min_confidence, law), law, verify)


def medusa(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_length: int | None = None,
    branches: tuple[int, ...] | None = None,
    nodes: int = 16,
    min_confidence: Threshold | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """Multi-byte heads draft at once: a chain, or a tree with `branches` children. Lossless."""
    _needs_byte_lm(model, "medusa")
    if branches is not None:
        if draft_length is not None or min_confidence is not None:
            raise ValueError("a tree takes its depth from branches: no draft_length, no threshold")
        nodes = _tree_size(branches, nodes)
        target = _keeping(target_of(model, capacity, nodes, window), model.config.trunk.layers)
        return _tree(target, MultiByteTree(target, tuple(branches), nodes), len(branches))
    depth = _heads(model).bytes_ahead if draft_length is None else draft_length
    target = _keeping(target_of(model, capacity, depth, window), model.config.trunk.layers)
    drafter = of_length(MultiByte(target, depth), depth, min_confidence, law)
    return verified(target, drafter, law, verify)


def two_byte(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    state_layer: int | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """A head on a state and the next byte drafts the byte after it. Lossless.

    `state_layer` is the depth of the state, by default the last one.
    """
    _needs_byte_lm(model, "two-byte")
    depth = model.config.trunk.layers if state_layer is None else state_layer
    target = _keeping(target_of(model, capacity, 1, window), depth)
    return verified(target, TwoByte(target, depth), law, verify)


def eagle(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_length: Length = 6,
    beam: int = 1,
    nodes: int = 16,
    min_confidence: Threshold | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """One trained layer on the features of the whole model drafts. Lossless.

    With a `beam` of more than 1 it drafts a tree of `nodes`, as deep as `draft_length`, at each
    level of which that many nodes go on.
    """
    _needs_byte_lm(model, "eagle")
    if beam > 1 and (isinstance(draft_length, Mapping) or min_confidence is not None):
        raise ValueError("a tree takes no table of lengths and no threshold of confidence")
    depth = longest_draft(model, draft_length)
    width = min(nodes, beam * depth) if beam > 1 else depth
    target = _keeping(target_of(model, capacity, width, window), *(_heads(model).draft_layer or ()))
    if beam > 1:
        return _tree(target, DraftLayer(target, width, beam, depth), depth)
    drafter = of_length(DraftLayer(target, depth), draft_length, min_confidence, law)
    return verified(target, drafter, law, verify)


def spectr(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_model: Model,
    drafts: int = 2,
    draft_length: int = 4,
) -> Method:
    """A draft model makes several drafts, optimal transport chooses among them. Lossless.

    Greedy drafts are all alike: there it does what `draft-model` does, at a higher price.
    """
    _needs_byte_lm(model, "spectr")
    one = small_draft_model(
        model, law, capacity=capacity, draft_model=draft_model, draft_length=draft_length
    )
    drafter = Several(one.drafter, drafts)
    target = dataclasses.replace(one.target, width=drafter.width + 1)
    return dataclasses.replace(
        one,
        target=target,
        drafter=drafter,
        accept=acceptance.SpecTr(drafts),
        draft_length=drafter.width,
    )


def _exit(model, target, draft_length, exit_layer, verify_from, *, head=None, two_byte=False):
    """By default at half the depth, and by an exit head if there is one."""
    one_of("verify_from", verify_from, "exit", "embedding")
    width = longest_draft(model, draft_length)
    layer = _middle(model) if exit_layer is None else exit_layer
    head = layer in _heads(model).exits if head is None else head
    # States can be handed over to a window that is no wider than what was drafted.
    hand_over = verify_from == "exit" and target.width == width + 1
    return EarlyExit(target, width, layer, head=head, two_byte=two_byte, hand_over=hand_over)


def _tree(target: ByteLMTarget, drafter, depth: int) -> Method:
    width = target.width - 1
    return Method(target, padded(drafter, width), acceptance.Tree(depth), width, lossless=True)


def _tree_size(branches, nodes):
    """Nodes that are verified: as many as asked for, if there are as many."""
    level, all_of_them = 1, 0
    for children in branches:
        level *= children
        all_of_them += level
    return min(nodes, all_of_them)


def _keeping(target: ByteLMTarget, *depths: int) -> ByteLMTarget:
    return dataclasses.replace(target, keep=tuple(sorted(set(depths))))


def _heads(model: Model) -> HeadsConfig:
    return model.config.heads or HeadsConfig()


def _middle(model: Model) -> int:
    """The exit head that is nearest to half the depth; half the depth without one."""
    half = max(model.config.trunk.layers // 2, 1)
    return min(_heads(model).exits or (half,), key=lambda layer: abs(layer - half))


def _needs_byte_lm(model: Model, method: str) -> None:
    if not isinstance(model.module, ByteLM):
        raise ValueError(
            f"method {method!r} needs a byte transformer, not a Byte Latent Transformer"
        )
