"""Flags that several commands share."""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from bytelax.pods.configs import MeshConfig

Model = Annotated[
    str,
    tyro.conf.arg(
        help="The model: a bundled one (tiny, ...), a directory with a checkpoint, a training run, "
        "or a name on the hub."
    ),
]


@dataclasses.dataclass(frozen=True)
class Overrides:
    """Flags that replace config fields."""

    override: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Replace a field of the model's config, as name=value; may be given several times."""

    @property
    def fields(self) -> dict[str, Any]:
        """The config fields to replace, as keywords of `bytelax.load`."""
        return dict(map(_assignment, self.override))


@dataclasses.dataclass(frozen=True)
class Loading(Overrides):
    """Flags that decide how a model is loaded."""

    dtype: str | None = None
    """Cast the weights to float32, bfloat16 or float16, or with "auto" to the faster of the first
    two; the entropy model stays float32."""
    heads: str | None = None
    """Directory of heads for the model, as `bytelax train heads` leaves them in OUT/heads."""

    def load(self, location: str, **more: Any) -> Any:
        """Returns the `bytelax.Model` that is named, with further keywords of `bytelax.load`."""
        from bytelax.loading import load

        return load(location, dtype=self.dtype, heads=self.heads, **more, **self.fields)


@dataclasses.dataclass(frozen=True)
class QuantizedLoading(Loading):
    """Flags that decide how a model is loaded that decodes or scores."""

    quantize: str | None = None
    """Hold the weights as int8: half the memory of bfloat16, for slightly different likelihoods."""

    def load(self, location: str, **more: Any) -> Any:
        """As `Loading.load`."""
        return super().load(location, quantize=self.quantize, **more)


@dataclasses.dataclass(frozen=True)
class DecodingLoading(QuantizedLoading):
    """Flags that decide how a model and its draft model are loaded."""

    draft_quantize: str | None = None
    """Hold the weights of a draft model as int8, which changes drafts and not what is written."""

    def check_drafts(self, named: bool) -> None:
        """Raises a ValueError if the flag is given where no draft model is named."""
        if self.draft_quantize is not None and not named:
            raise ValueError("--draft-quantize is for a draft model, and none is named")

    @property
    def of_drafts(self) -> dict[str, Any]:
        """Keywords of `bytelax.load` for a draft model; no override is meant for it."""
        return {"dtype": self.dtype, "quantize": self.draft_quantize}


@dataclasses.dataclass(frozen=True)
class Windows:
    """How texts are read in windows; the fields are keywords of `score` and `patches`."""

    window: int | None = None
    """Most bytes that the model sees at once; by default 1023, or its context if shorter."""
    stride: int | None = None
    """Bytes by which windows move along a longer text; by default half of the window."""
    batch: int = 8
    """Windows that are read together."""


def value_of(flag: str, args: Sequence[str]) -> str:
    """Returns the value of a flag, which stands after a space or an equals sign; empty if none."""
    values = [
        following if argument == flag else argument.removeprefix(f"{flag}=")
        for argument, following in itertools.zip_longest(args, args[1:], fillvalue="")
        if argument == flag or argument.startswith(f"{flag}=")
    ]
    return values[-1] if values else ""


def _assignment(text):
    from bytelax.checkpoints.byte_ids import ASKED
    from bytelax.checkpoints.overrides import OVERRIDES

    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--override takes name=value, got {text!r}")
    known = (*OVERRIDES, *ASKED)
    if name not in known:
        raise ValueError(f"--override knows no {name!r}; it takes {', '.join(known)}")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


Mesh = Annotated[
    MeshConfig,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="AXIS=NUMBER,...",
        instance_from_str=lambda words: MeshConfig.parse(words[0]),
        is_instance=lambda value: isinstance(value, MeshConfig),
        str_from_instance=lambda mesh: [str(mesh)],
    ),
]  # as --mesh data=8,tensor=4; other axes have size 1
