"""Flags that decide how a command loads its model."""

import dataclasses

import tyro


@dataclasses.dataclass(frozen=True)
class Overrides:
    """Flags that replace config fields."""

    override: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Replace a field of the model's config, as name=value; may be given several times."""


@dataclasses.dataclass(frozen=True)
class LoadFlags(Overrides):
    """Flags that decide how a model is loaded."""

    dtype: str | None = None
    """Cast the weights to float32, bfloat16 or float16; the entropy model stays float32."""
    heads: str | None = None
    """Directory of heads for the model, as `bytelax train heads` leaves them in OUT/heads."""


@dataclasses.dataclass(frozen=True)
class DecodeLoadFlags(LoadFlags):
    """Flags that decide how a model is loaded that decodes or scores."""

    quantize: str | None = None
    """Hold the weights as int8: half the memory of bfloat16, for slightly different likelihoods."""
