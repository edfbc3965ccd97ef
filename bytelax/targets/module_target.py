"""What targets that decode with a Flax module have in common."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode.drafter import DraftInput
from bytelax.decode.target import Windowed
from bytelax.models import fused, ring

Rings = tuple[Float[Array, "B N _"], ...]
Own = TypeVar("Own", bound="ModuleTarget")


class ModuleTarget(Windowed):
    """Base of targets, frozen dataclasses, that decode with a Flax module.

    They keep hidden states for drafters. The states of a window are `trial.hidden`, one array for
    each depth in `keep`. Those of the latest bytes are `state.hidden`: rings (`models.ring`) to be
    read up to `state.length - 1`. The state of a byte depends on that byte and those before it.

    Attributes:
      module: the model, whose config has its sizes.
      keep: depths whose states are kept, in ascending order.
      reach: number of the latest bytes whose states are kept; None keeps those of all.
    """

    module: Any
    keep: tuple[int, ...]
    reach: int | None

    model_kind = "a byte transformer or a Byte Latent Transformer"

    def bound(self, params: Any) -> Any:
        """Returns the module bound to its parameters, as it runs while it decodes."""
        return fused.decoding(self.module).bind({"params": params})

    @property
    def vocab_size(self) -> int:
        """Number of ids that the model predicts."""
        return self.module.config.vocab_size

    @property
    def max_bytes(self) -> int:
        """Maximum length of a text, BOS included."""
        return self.module.config.max_bytes

    def agreed(self, values: Any) -> Any:
        """Returns the integers of the first device of each row; see `Target`."""
        return self.module.execution.agreed(values)

    def keeping(self: Own, *depths: int, reach: int | None = 1) -> Own:
        """Returns the target that also keeps the states at these depths, of `reach` bytes."""
        wider = None if self.reach is None or reach is None else max(self.reach, reach)
        keep = tuple(sorted({*self.keep, *depths}))
        return dataclasses.replace(self, keep=keep, reach=wider)  # type: ignore[type-var]


def kept_state(
    inputs: DraftInput, depth: int, positions: Int[Array, "B N"]
) -> Float[Array, "B N D"]:
    """Returns the target's hidden states at a depth that `fit` asked it to keep.

    Args:
      inputs: input of a drafter, with a `ModuleTarget`.
      depth: depth of the states.
      positions: positions of bytes that the target has processed, within its reach.
    """
    target = inputs.target
    assert isinstance(target, ModuleTarget)
    return ring.at(inputs.state.hidden[target.keep.index(depth)], positions)


def no_states(widths: Sequence[int], *, batch: int, slots: int, dtype) -> Rings:
    """Creates one ring of zeros for each width."""
    return tuple(jnp.zeros((batch, slots, width), dtype) for width in widths)


def with_states(
    rings: Rings, states: Sequence[Float[Array, "B W _"]], positions: Int[Array, "B W"]
) -> Rings:
    """Writes the states of a window to the rings; position -1 writes nothing."""
    return tuple(ring.put(one, new, positions) for one, new in zip(rings, states, strict=True))
