"""The options of all named systems: frozen dataclasses, free of JAX.

`bytelax.generate(model, prompts, method="blt-s", draft_length=4)` and `method=BltS(draft_length=4)`
are the same. The flags of the command line and docs/methods.md are read from these classes. How a
system is built from its options is in `bytelax/systems`, in the file that `system` names.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import numbers
import reprlib
import types
import typing
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

UnmaskName = Literal["confidence", "entropy", "entropy-minus-max", "one-step"]
if TYPE_CHECKING:  # what is taken in Python: a `bytelax.Model` or its name, and any function
    ModelOrName = Any
    UnmaskOrName = UnmaskName | Callable[..., Any]
else:  # and on the command line
    ModelOrName, UnmaskOrName = str, UnmaskName

METHODS: dict[str, type[Options]] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a system that has a name. A subclass with a `name` is in `METHODS`.

    Attributes:
      name: the name, as in `bytelax.generate(method=)`.
      system: the file in `bytelax/systems` that builds the method.
      lossless: whether the output is that of plain decoding with the same weights.

    Raises:
      ValueError: an option has a value of another kind.
    """

    name: ClassVar[str]
    system: ClassVar[str]
    lossless: ClassVar[bool] = True

    def __init_subclass__(cls):
        if "name" in vars(cls):
            METHODS[cls.name] = cls

    def __post_init__(self):
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            _check(field.name, getattr(self, field.name), hints[field.name])

    def build(self, model: Any) -> Any:
        """Returns the `bytelax.decode.Method` that decodes with a model.

        Args:
          model: the target model, a `bytelax.Model`. A draft model must be loaded already; see
            `bytelax.methods.build`.

        Raises:
          ValueError: the model cannot be decoded with in this way.
        """
        system = importlib.import_module(f"bytelax.systems.{self.system}")
        try:
            return system.build(self, model)
        except TargetError as error:
            raise TargetError(self.name, error.needs) from None
        except ValueError as error:
            raise ValueError(f"{error} (method {self.name!r})") from None


class TargetError(ValueError):
    """A system cannot work with this kind of model.

    Args:
      who: the system, or its drafter.
      needs: what it needs, and what it was given.
    """

    def __init__(self, who: str, needs: str):
        super().__init__(f"{who} needs {needs}")
        self.needs = needs


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Drafting(Options):
    draft_length: int = 8
    """Number of bytes drafted in each round."""


# For every model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ar(Options):
    """Plain autoregressive decoding, one byte per round.

    The rows of a BLT's batch close their patches at different bytes, so in most rounds some row
    needs the global transformer. With `synchronous`, rows that have closed a patch wait for the
    others; with 1, until every running row has closed one.
    """

    name = "ar"
    system = "ar"
    synchronous: float = 0.0
    """Share of a BLT's rows that must have closed a patch before the global transformer runs for
    all of them at once. Rows that are ready wait; the output stays the same."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup(_Drafting):
    """Prompt lookup: copies what followed an earlier occurrence of the last bytes."""

    name = "lookup"
    system = "lookup"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftModel(_Drafting):
    """A smaller model drafts byte by byte (speculative decoding)."""

    name = "draft-model"
    system = "draft_model"
    draft_model: ModelOrName
    """The small model that drafts, named as in --model."""
    draft_length: int = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecTr(DraftModel):
    """A draft model proposes several drafts; optimal transport selects one (SpecTr).

    Under greedy sampling all drafts are equal, so the output is that of `draft-model` at a higher
    cost.
    """

    name = "spectr"
    system = "spectr"
    drafts: int = 2
    """Number of drafts to choose from."""


# For a Byte Latent Transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltS(_Drafting):
    """The local decoder of a BLT drafts past its patch, and a full pass verifies.

    With `draft_with` the drafting is itself speculative: a cheaper drafter drafts for the decoder,
    which verifies several bytes in a pass, and what it keeps is the draft for the whole BLT.
    """

    name = "blt-s"
    system = "blt_s"
    latent: Literal["reuse", "refresh", "predicted"] = "reuse"
    """Draft with the latest latent there is (reuse), first bring it up to date by a second pass
    (refresh), or predict the latent of each patch that the draft closes (predicted), which needs a
    head of latents."""
    draft_with: Literal["lookup", "medusa"] | None = None
    """What drafts for the decoder: prompt lookup, or multi-byte heads; by default nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Blocks(Options):
    block_size: int = 8
    """Number of bytes in a block."""
    unmask: UnmaskOrName = "confidence"
    """Rule for which masked bytes of a block to fill in each pass."""
    alpha: float | None = None
    """For confidence: fill in bytes whose probability is above this."""
    gamma: float | None = None
    """For entropy: fill in bytes whose entropies sum to at most this, in nats."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltD(_Blocks):
    """Block diffusion: the decoder fills blocks of masked bytes, and all are kept."""

    name = "blt-d"
    system = "blt_d"
    lossless = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltDV(_Blocks):
    """Block diffusion with verification: the model verifies the blocks that it fills.

    A block table, which `bytelax train heads` trains, makes each byte of a block depend on the one
    before it and on what the decoder predicts for it.
    """

    name = "blt-dv"
    system = "blt_d"
    unmask: UnmaskOrName = "one-step"
    latent: Literal["reuse", "refresh"] = "reuse"
    """Draft with the latest latent there is (reuse), or first bring it up to date by a second pass
    (refresh)."""
    table: bool | None = None
    """Sample the block from left to right through the model's block table; by default if it has one
    and the rule is one-step."""


# For a byte transformer, and with heads for a BLT too


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Exit(_Drafting):
    draft_length: int = 4
    exit_layer: int | None = None
    """Number of layers to draft with; by default half of them, or to the nearest exit head."""
    verify_from: Literal["exit", "embedding"] | None = None
    """Continue verification from the states at the exit, or compute all layers again; by default
    the former in float32 and the latter in narrower dtypes, where rounding changes bytes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyExit(_Exit):
    """Early exit: the first layers draft, and all of them verify.

    With `verify_from` "exit", verification continues from the states that drafting computed. They
    differ from those of a wider window by rounding only. With "embedding", all layers are computed
    again, so that the output equals that of plain decoding in the same windows to the last bit.
    """

    name = "early-exit"
    system = "early_exit"
    exit_head: bool | None = None
    """Use the exit's own output layer; by default if it has one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Composed(_Exit):
    """Early exit with a two-byte head, so that every pass drafts two bytes."""

    name = "composed"
    system = "early_exit"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSkip(_Drafting):
    """Layer skipping: the model drafts without some of its blocks, and all verify.

    By default every second block is skipped, except the first and the last one.
    """

    name = "layer-skip"
    system = "layer_skip"
    draft_length: int = 4
    skip_attention: tuple[int, ...] = ()
    """Indices of the blocks whose attention is skipped, from 0."""
    skip_mlp: tuple[int, ...] = ()
    """Indices of the blocks whose SwiGLU is skipped, from 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Medusa(Options):
    """Medusa: multi-byte heads draft all bytes at once, as a chain or a tree.

    With `branches` the draft is a tree.
    """

    name = "medusa"
    system = "medusa"
    draft_length: int | None = None
    """Number of heads to draft with; all by default."""
    branches: tuple[int, ...] = ()
    """Number of children of a node at each level; the draft is then a tree."""
    nodes: int = 16
    """Number of nodes of the tree to verify."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoByte(Options):
    """A two-byte-ahead head drafts the byte after the next one."""

    name = "two-byte"
    system = "two_byte"
    state_layer: int | None = None
    """Depth of the hidden state to read; the last by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eagle(_Drafting):
    """EAGLE: one trained layer drafts from features of the whole model.

    With a `beam` above 1 it drafts a tree with `draft_length` levels, each of which expands `beam`
    nodes; `nodes` of the tree are verified.
    """

    name = "eagle"
    system = "eagle"
    draft_length: int = 6
    beam: int = 1
    """Number of nodes to expand at each level; above 1 the draft is a tree."""
    nodes: int = 16
    """Number of nodes of the tree to verify."""
    min_survival: float | None = None
    """End a draft before the first byte that is kept with a probability below this. A trained
    confidence head predicts it before the byte is drawn; without one, the drafter's largest
    probability stands in."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DFlash(Options):
    """DFlash: trained layers on the model's states draft a block in one pass."""

    name = "dflash"
    system = "dflash"
    draft_length: int | None = None
    """Number of bytes drafted in each round; by default as many as in a block of training."""
    min_survival: float | None = None
    """End a draft before the first byte that is kept with a probability below this. A trained
    confidence head predicts it before the byte is drawn; without one, the drafter's largest
    probability stands in."""


def _check(name: str, value: Any, hint: Any) -> None:
    """Raises ValueError if a value is not of the type of an option."""
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    kinds = typing.get_args(hint) if union else (hint,)
    choices = [word for kind in kinds for word in typing.get_args(kind) if isinstance(word, str)]
    if choices and isinstance(value, str) and value not in choices:
        raise ValueError(f"{name} {value!r} is not one of {', '.join(choices)}")
    if not any(_fits(value, kind) for kind in kinds):
        raise ValueError(f"{name} cannot be {reprlib.repr(value)}")


def _fits(value, kind):
    """Whether a value is of a type. Integers must fit into 32 bits."""
    if value is None or isinstance(value, bool):
        return kind is type(value)
    if kind in (bool, types.NoneType):
        return False
    if typing.get_origin(kind) is tuple:
        whole = typing.get_args(kind)[0]
        return isinstance(value, tuple | list) and all(_fits(part, whole) for part in value)
    if kind is int:
        return isinstance(value, numbers.Integral) and -(2**31) <= int(value) < 2**31
    if kind is float:
        return isinstance(value, numbers.Real)
    return True  # words, models and functions are checked where they are used


def meant(word: str, known: Iterable[str]) -> str:
    """Returns a question that offers the nearest known word; empty if none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else ""


def find(name: str) -> type[Options]:
    """Returns the class of a named method; raises ValueError if there is none."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    if hasattr(name, "propose"):
        raise ValueError(f"wrap a drafter: decode.Method(model.target(), drafter), got {name!r}")
    hint = f"{meant(name, METHODS)} " if isinstance(name, str) else ""
    raise ValueError(f"unknown method {name!r}; {hint}there are: {', '.join(METHODS)}")


def named(name: str, /, **options: Any) -> Options:
    """Returns the method of a name with its options.

    Args:
      name: a key of `METHODS`.
      **options: fields of the method; None selects the default.

    Raises:
      ValueError: there is no such method, it does not take an option, an option is missing or has
        a value of another kind.
    """
    method = find(name)
    fields = {field.name: field for field in dataclasses.fields(method)}
    options = {option: value for option, value in options.items() if value is not None}
    for option in options.keys() - fields.keys():
        raise ValueError(f"method {name!r} takes no {option!r}; its options: {', '.join(fields)}")
    for option, field in fields.items():
        if option not in options and field.default is dataclasses.MISSING:
            raise ValueError(f"method {name!r} needs {option}")
    return method(**options)
