"""Methods of the Byte Latent Transformer: BLT-S, BLT-D, BLT-DV."""

import dataclasses
from collections.abc import Mapping

from bytelax_kernels.unmask import Rule

from bytelax.decode import acceptance
from bytelax.decode.drafters import BlockDiffusion, PastBoundary
from bytelax.decode.sampling import Sampling
from bytelax.decode.unmasking import ONE_STEP, confidence, entropy_bound
from bytelax.methods.method import (
    Length,
    Method,
    Threshold,
    longest,
    longest_draft,
    needs_blt,
    of_length,
    one_of,
    target_of,
    verified,
)
from bytelax.model import Model


def blt_s(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_length: Length = 8,
    latent: str = "reuse",
    draft_layers: int | None = None,
    min_confidence: Threshold | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """A BLT's local decoder drafts past its patch, a full pass verifies. Lossless."""
    needs_blt(model, "blt-s")
    one_of("latent", latent, "reuse", "refresh")
    width = longest_draft(model, draft_length)
    target = target_of(model, capacity, width, window)
    drafter = PastBoundary(target, width, latent=latent, depth=draft_layers)
    drafter = of_length(drafter, draft_length, min_confidence, law)
    return verified(target, drafter, law, verify)


def blt_d(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    block_size: Length = 8,
    unmask: str = "confidence",
    alpha: float | None = None,
    gamma: float | None = None,
    open_patch: str = "latest",
) -> Method:
    """Blocks of masked bytes, filled by the decoder and kept as they are. Not lossless."""
    if isinstance(block_size, Mapping):
        raise ValueError(f"blt-d keeps its blocks whole: block_size is a number, got {block_size}")
    _block(model, "blt-d", block_size)
    one_of("open_patch", open_patch, "latest", "truncated", "finish")
    target = dataclasses.replace(
        target_of(model, capacity, block_size),
        ahead=block_size,
        open_patch="truncated" if open_patch == "truncated" else "latest",
    )
    unmasking = unmasking_rule(unmask, alpha=alpha, gamma=gamma)
    drafter = BlockDiffusion(
        target, block_size, unmasking, latent="ahead", finish=open_patch == "finish"
    )
    return Method(target, drafter, acceptance.take_all, block_size, lossless=False)


def blt_dv(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    block_size: Length = 8,
    unmask: str = "one-step",
    alpha: float | None = None,
    gamma: float | None = None,
    latent: str = "reuse",
    min_confidence: Threshold | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """Blocks of masked bytes, filled by the decoder and verified by the same model. Lossless.

    Of a table of block sizes the longest is drafted, and its beginning verified.
    """
    width = _block(model, "blt-dv", block_size)
    one_of("latent", latent, "reuse", "refresh")
    target = target_of(model, capacity, width, window)
    unmasking = unmasking_rule(unmask, alpha=alpha, gamma=gamma)
    drafter = BlockDiffusion(target, width, unmasking, latent=latent)
    return verified(target, of_length(drafter, block_size, min_confidence, law), law, verify)


def unmasking_rule(name: str, *, alpha: float | None, gamma: float | None) -> Rule:
    """The rule called "confidence", "entropy", "entropy-minus-max" or "one-step".

    Raises:
      ValueError: no such rule, or a bound that it does not have.
    """
    one_of("unmask", name, "confidence", "entropy", "entropy-minus-max", "one-step")
    if alpha is not None and name != "confidence":
        raise ValueError(f"alpha belongs to unmask='confidence', not to {name!r}")
    if gamma is not None and not name.startswith("entropy"):
        raise ValueError(f"gamma belongs to unmask='entropy', not to {name!r}")
    if name == "one-step":
        return ONE_STEP
    if name == "confidence":
        return confidence() if alpha is None else confidence(alpha)
    but_one = name == "entropy-minus-max"
    return entropy_bound(but_one=but_one) if gamma is None else entropy_bound(gamma, but_one)


def _block(model: Model, method: str, size: Length) -> int:
    """The longest block, of those that the model was trained on."""
    needs_blt(model, method)
    trained = model.config.block_size
    if not trained:
        raise ValueError(
            f"method {method!r} needs a model trained to fill in masked bytes (`bytelax train "
            "blt-d`); this one was not"
        )
    if not 1 <= longest(size) <= trained:
        raise ValueError(f"the model was trained on blocks of up to {trained}, got {size}")
    return longest(size)
