"""The options of all named systems: frozen dataclasses, free of JAX.

`bytelax.generate(model, prompts, method="blt-s", draft_length=4)` and `method=BltS(draft_length=4)`
are the same. The flags of the command line and docs/methods.md are read from these classes. How a
system is built from its options is in `bytelax/systems`, in the file that `system` names.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from bytelax.checked import Checked, check_least

UnmaskName = Literal["confidence", "entropy", "entropy-minus-max", "one-step"]
if TYPE_CHECKING:  # what is taken in Python: a `bytelax.Model` or its name, and any function
    ModelOrName = Any
    UnmaskOrName = UnmaskName | Callable[..., Any]
else:  # and on the command line
    ModelOrName, UnmaskOrName = str, UnmaskName

METHODS: dict[str, type[Options]] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """The options of a system that has a name. A subclass with a `name` is in `METHODS`.

    Attributes:
      name: the name, as in `bytelax.generate(method=)`.
      system: the file in `bytelax/systems` that builds the method; by default that of the first
        name among its base classes, or of its own.
      lossless: whether the output is that of plain decoding with the same weights.
    """

    name: ClassVar[str]
    system: ClassVar[str] = ""
    lossless: ClassVar[bool] = True
    by_name = ("draft_model", "unmask")

    def __init_subclass__(cls):
        if "name" in vars(cls):
            METHODS[cls.name] = cls
            cls.system = cls.system or cls.name.replace("-", "_")

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
    """Plain autoregressive decoding, one byte per round."""

    name = "ar"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuned(Options):
    """The setting that `bytelax tune` found fastest for this model, machine and batch size.

    It is plain decoding where nothing was faster, or nothing was tuned.
    """

    name = "tuned"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup(_Drafting):
    """Prompt lookup: copies what followed an earlier occurrence of the last bytes."""

    name = "lookup"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftModel(_Drafting):
    """A smaller model drafts byte by byte (speculative decoding)."""

    name = "draft-model"
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
    """The local decoder of a BLT drafts past its patch, and a full pass verifies."""

    name = "blt-s"
    latent: Literal["reuse", "refresh", "predicted"] = "reuse"
    """Draft with the latest latent there is (reuse), first bring it up to date by a second pass
    (refresh), or predict the latent of each patch that the draft closes (predicted), which needs a
    head of latents."""


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
    """Continue verification from the states at the exit, the default in float32; or compute all
    layers again, the default in bfloat16, where rounding would change bytes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyExit(_Exit):
    """Early exit: the first layers draft, and all of them verify.

    With `verify_from` "exit", verification continues from the states that drafting computed. They
    differ from those of a wider window by rounding only. With "embedding", all layers are computed
    again, so that the output equals that of plain decoding in the same windows to the last bit.
    """

    name = "early-exit"
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
    state_layer: int | None = None
    """Depth of the hidden state to read; the last by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eagle(_Drafting):
    """EAGLE: one trained layer drafts from features of the whole model.

    With a `beam` above 1 it drafts a tree with `draft_length` levels, each of which expands `beam`
    nodes; `nodes` of the tree are verified.
    """

    name = "eagle"
    draft_length: int = 6
    beam: int = 1
    """Number of nodes to expand at each level; above 1 the draft is a tree."""
    nodes: int = 16
    """Number of nodes of the tree to verify."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DFlash(Options):
    """DFlash: trained layers on the model's states draft a block in one pass."""

    name = "dflash"
    draft_length: int | None = None
    """Number of bytes drafted in each round; by default as many as in a block of training."""


# What is trained for a system: the sizes of its network, whose parameters are `params["heads"]`


def _check_depths(depths: tuple[int, ...], most: int, layers: int) -> None:
    for depth in depths:
        if not 1 <= depth <= most:
            raise ValueError(
                f"depths must lie in 1..{most}, of {layers} layers in all, got {depth}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head(Checked):
    """Sizes of the network of a system that is trained for a frozen model.

    Attributes:
      needs: the kind of model that it is for; None for any.
      size: the field that is 0 or empty where a model has no such network, which is the default.
    """

    needs: ClassVar[Literal["a byte transformer", "a BLT"] | None] = None
    size: ClassVar[str]

    @property
    def present(self) -> bool:
        """Whether the model has this network."""
        return bool(vars(self)[self.size])

    def check(self, trunk: Any, block_size: int) -> None:
        """Raises ValueError if the sizes do not fit a model, or conflict.

        Args:
          trunk: the stack of layers whose states are read.
          block_size: longest block of masked bytes that the model fills in.
        """

    def device_shard(self, trunk: Any, devices: int) -> Head:
        """Returns the sizes on one of several devices, for a trunk that is not yet split."""
        return self


_SIZES = ("dim", "heads", "kv_heads", "head_dim", "ffn_dim", "window")  # None: as in the trunk
_OF_TEXTS = ("window", "rope_theta", "rope_scaling", "norm_eps")
Stack = TypeVar("Stack")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftStackHead(Head):
    """Sizes of layers that draft from states of the model. A size that is None is the trunk's.

    Attributes:
      depths: depths of the states that are fused; the state at depth n is the output of n layers.
      dim, heads, kv_heads, head_dim, ffn_dim: sizes of the stack. If `dim` is set, the others that
        are None follow from it as in `TransformerConfig`.
      window: number of positions that a query attends to, its own included.
      latent: whether the latest latent of a BLT is fused with the states.
    """

    size = "depths"
    depths: tuple[int, ...] = ()
    dim: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn_dim: int | None = None
    window: int | None = None
    latent: bool = False

    @property
    def fused(self) -> tuple[int, ...]:
        """The depths of all states that are fused; 0 is the latent of a BLT."""
        return (0, *self.depths) if self.latent else self.depths

    def stack(self, trunk: Stack, layers: int = 1) -> Stack:
        """Returns the `TransformerConfig` of the layers, for a model with this trunk."""
        own: dict[str, Any] = {x: vars(self)[x] for x in _SIZES if vars(self)[x] is not None}
        known: Any = trunk
        if self.dim is None:
            return dataclasses.replace(known, layers=layers, **own)
        shared = {name: vars(known)[name] for name in _OF_TEXTS}
        return type(known)(layers=layers, **(shared | own))

    def check(self, trunk: Any, block_size: int) -> None:
        """Raises ValueError if the depths or the sizes do not fit a model."""
        _check_depths(self.depths, trunk.layers, trunk.layers)
        self.stack(trunk)

    def device_shard(self, trunk: Any, devices: int) -> DraftStackHead:
        """Returns the sizes on one of several devices, which share heads and hidden units."""
        shard = self.stack(trunk).device_shard(devices)
        return dataclasses.replace(self, **{name: vars(shard)[name] for name in _SIZES})


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagleHead(DraftStackHead):
    """Sizes of EAGLE's layer, which fuses a low, a middle and a high state."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DFlashHead(DraftStackHead):
    """Sizes of DFlash's layers.

    Attributes:
      layers: number of layers.
      block_size: maximum number of bytes that are drafted in one pass.
      table_rank: rank of the table of the byte before; None is a full table with a row for each
        byte, 0 is no table.
    """

    layers: int = 1
    block_size: int = 8
    table_rank: int | None = None

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 1, "layers", "block_size")
        check_least(self, 0, "table_rank")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MedusaHead(Head):
    """Sizes of multi-byte heads.

    Attributes:
      count: number of heads, each of which predicts one byte after the next one.
      correction: whether they add a table indexed by the byte before the predicted one.
    """

    size = "count"
    count: int = 0
    correction: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "count")
        if self.correction and not self.count:
            raise ValueError("the correction belongs to multi-byte heads: give a count")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyExitHead(Head):
    """Early exits with output layers of their own.

    Attributes:
      depths: number of layers before each exit.
    """

    needs = "a byte transformer"
    size = "depths"
    depths: tuple[int, ...] = ()

    def check(self, trunk: Any, block_size: int) -> None:
        """Raises ValueError if there is no such layer, or it is the last one."""
        _check_depths(self.depths, trunk.layers - 1, trunk.layers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoByteHead(Head):
    """Two-byte-ahead heads.

    Attributes:
      depths: depth of the state that each head reads.
    """

    needs = "a byte transformer"
    size = "depths"
    depths: tuple[int, ...] = ()

    def check(self, trunk: Any, block_size: int) -> None:
        """Raises ValueError if there is no such layer."""
        _check_depths(self.depths, trunk.layers, trunk.layers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltDHead(Head):
    """A table with which each byte of a block depends on the byte before and on the state.

    Attributes:
      block_size: maximum number of bytes that it is trained to draft in one pass; 0 for no table.
    """

    needs = "a BLT"
    size = "block_size"
    block_size: int = 0

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "block_size")

    def check(self, trunk: Any, block_size: int) -> None:
        """Raises ValueError if the model does not fill in blocks as long."""
        if self.block_size > block_size:
            raise ValueError(
                f"block_size {self.block_size} needs a model that fills in as many masked bytes "
                f"(`bytelax train blt-d`), not {block_size}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltSHead(Head):
    """A network that predicts the latents of the patches that a draft closes, and where they close.

    Attributes:
      ffn_dim: its hidden units; 0 for no such network.
    """

    needs = "a BLT"
    size = "ffn_dim"
    ffn_dim: int = 0

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "ffn_dim")

    def device_shard(self, trunk: Any, devices: int) -> BltSHead:
        """Returns the sizes on one of several devices, which share the hidden units."""
        return dataclasses.replace(self, ffn_dim=self.ffn_dim // devices)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadsConfig(Checked):
    """Which systems a model has trained networks of. A field has the name of the system's file.

    Attributes:
      early_exit, medusa, two_byte, eagle, dflash, blt_d, blt_s: sizes of each network.
    """

    early_exit: EarlyExitHead = EarlyExitHead()
    medusa: MedusaHead = MedusaHead()
    two_byte: TwoByteHead = TwoByteHead()
    eagle: EagleHead = EagleHead()
    dflash: DFlashHead = DFlashHead()
    blt_d: BltDHead = BltDHead()
    blt_s: BltSHead = BltSHead()

    @property
    def present(self) -> dict[str, Head]:
        """The networks that there are, by name."""
        return {name: head for name, head in vars(self).items() if head.present}

    def check(self, trunk: Any, *, blt: bool, block_size: int = 0) -> None:
        """Raises ValueError if the networks do not fit a model.

        Args:
          trunk: the stack of layers whose states are read.
          blt: whether the model is a BLT, and not a byte transformer.
          block_size: longest block of masked bytes that it fills in.
        """
        kind = "a BLT" if blt else "a byte transformer"
        for name, head in self.present.items():
            if head.needs not in (None, kind):
                raise ValueError(f"heads.{name} is for {head.needs}, not for {kind}")
            if isinstance(head, DraftStackHead) and head.latent and not blt:
                raise ValueError(f"heads.{name}.latent is for a BLT: {kind} has no latents")
            try:
                head.check(trunk, block_size)
            except ValueError as error:
                raise ValueError(f"heads.{name}.{error}") from None

    def device_shard(self, trunk: Any, devices: int) -> HeadsConfig:
        """Returns the networks on one of several devices, for a trunk that is not yet split."""
        shards: Any = {x: head.device_shard(trunk, devices) for x, head in self.present.items()}
        return dataclasses.replace(self, **shards)


def meant(word: str, known: Iterable[str]) -> str:
    """Returns a question that offers the nearest known word; empty if none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else ""


def find(name: str) -> type[Options]:
    """Returns the class of a named method; raises ValueError if there is none."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    if hasattr(name, "propose"):  # this file knows no drafters
        raise ValueError(f"wrap a drafter: decode.Method(model.target(), drafter), got {name!r}")
    near = meant(name, METHODS) if isinstance(name, str) else ""
    hint = f"{near} " if near else ""
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
    for option in options.keys() - fields.keys():
        own = f"; its options: {', '.join(fields)}" if fields else ", and no other option"
        raise ValueError(f"method {name!r} takes no {option!r}{own}")
    options = {option: value for option, value in options.items() if value is not None}
    for option, field in fields.items():
        if option not in options and field.default is dataclasses.MISSING:
            raise ValueError(f"method {name!r} needs {option}")
    return method(**options)
