"""The named methods: frozen dataclasses whose fields are their options.

`bytelax.generate(model, prompts, method="blt-s", draft_length=4)` and `method=BltS(draft_length=4)`
are the same, and `BltS(draft_length=4).build(model)` is the `bytelax.decode.Method` that runs. The
flags of the command line and docs/methods.md are read from these classes. No JAX is imported before
a method is built.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bytelax import vocab
from bytelax.methods.base import METHODS as METHODS
from bytelax.methods.base import Named as Named
from bytelax.methods.base import build as build
from bytelax.methods.base import find as find
from bytelax.methods.base import named as named
from bytelax.models.configs import HeadsConfig

UnmaskName = Literal["confidence", "entropy", "entropy-minus-max", "one-step"]
if TYPE_CHECKING:  # what is taken in Python
    from bytelax.decode.unmasking import Unmask
    from bytelax.model import Model

    ModelOrName = Model | str | Path
    UnmaskOrName = UnmaskName | Unmask
else:  # and on the command line
    ModelOrName, UnmaskOrName = str, UnmaskName


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Drafting(Named):
    draft_length: int = 8
    """Number of bytes drafted in each round."""

    def _length(self, model):
        limit = model.config.max_bytes - 1
        if not 1 <= self.draft_length <= limit:
            raise ValueError(f"draft_length must lie in 1..{limit}, got {self.draft_length}")
        return self.draft_length


def _heads(model):
    return getattr(model.config, "heads", None) or HeadsConfig()


def _layers(model):
    """Depth of a byte transformer; 1 of another model, which the drafter refuses."""
    trunk = getattr(model.config, "trunk", None)
    return trunk.layers if trunk else 1


# For every model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ar(Named):
    """Plain autoregressive decoding, one byte per round.

    The rows of a BLT's batch close their patches at different bytes, so in most rounds some row
    needs the global transformer. With `synchronous`, rows that have closed a patch wait for the
    others; with 1, until every running row has closed one.
    """

    name = "ar"
    synchronous: float = 0.0
    """Share of a BLT's rows that must have closed a patch before the global transformer runs for
    all of them at once. Rows that are ready wait; the output stays the same."""

    def _method(self, decode, model):
        target = model.target()
        if self.synchronous:
            if not isinstance(target, decode.BLTTarget):
                raise ValueError("synchronous needs a Byte Latent Transformer, not a byte model")
            target = dataclasses.replace(target, synchronous=float(self.synchronous))
        return decode.Method(target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lookup(_Drafting):
    """Prompt lookup: copies what followed an earlier occurrence of the last bytes. Lossless."""

    name = "lookup"

    def _drafter(self, decode, model):
        return decode.Lookup(self._length(model))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftModel(_Drafting):
    """A smaller model drafts byte by byte (speculative decoding). Lossless."""

    name = "draft-model"
    draft_model: ModelOrName
    """The small model that drafts, named as in --model."""
    draft_length: int = 4

    def loaded(self, model: Model) -> DraftModel:
        """Returns the same with a draft model that is loaded and on the mesh of `model`."""
        from bytelax.loading import load
        from bytelax.model import Model

        small = self.draft_model
        small = load(small) if isinstance(small, str | Path) else small
        if not isinstance(small, Model):
            raise ValueError(f"draft_model is a model or names one, got {reprlib.repr(small)}")
        small = small if model.mesh is None else small.on(model.mesh)
        return dataclasses.replace(self, draft_model=small)

    @property
    def params(self) -> Any:
        """The parameters of the draft model, once it is loaded."""
        return self._small.device_params

    @property
    def _small(self) -> Model:
        assert not isinstance(self.draft_model, str | Path)  # `loaded` has loaded it
        return self.draft_model

    def _drafter(self, decode, model):
        return decode.DraftModel(self._small.target(), self._length(model))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecTr(DraftModel):
    """A draft model proposes several drafts; optimal transport selects one (SpecTr). Lossless.

    Under greedy sampling all drafts are equal, so the output is that of `draft-model` at a higher
    cost.
    """

    name = "spectr"
    drafts: int = 2
    """Number of drafts to choose from."""

    def _drafter(self, decode, model):
        return decode.ParallelDrafts(super()._drafter(decode, model), self.drafts)


# For a Byte Latent Transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltS(_Drafting):
    """The local decoder of a BLT drafts past its patch, and a full pass verifies. Lossless.

    With `draft_with` the drafting is itself speculative: a cheaper drafter drafts for the decoder,
    which verifies several bytes in a pass, and what it keeps is the draft for the whole BLT.
    """

    name = "blt-s"
    latent: Literal["reuse", "refresh", "predicted"] = "reuse"
    """Draft with the latest latent there is (reuse), first bring it up to date by a second pass
    (refresh), or predict the latent of each patch that the draft closes (predicted), which needs a
    head of latents."""
    draft_with: Literal["lookup", "medusa"] | None = None
    """What drafts for the decoder: prompt lookup, or multi-byte heads; by default nothing."""

    def _drafter(self, decode, model):
        length, latent = self._length(model), self.latent
        if self.draft_with is None:
            return decode.PastBoundary(length, latent)
        if latent == "refresh":
            raise ValueError("draft_with goes with latent 'reuse' or 'predicted', not 'refresh'")
        if self.draft_with == "lookup":
            return decode.Nested(length, decode.Lookup(min(4, length)), latent)
        ahead = _heads(model).bytes_ahead
        return decode.Nested(length, decode.MultiByte(min(ahead, length)), latent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Blocks(Named):
    block_size: int = 8
    """Number of bytes in a block."""
    unmask: UnmaskOrName = "confidence"
    """Rule for which masked bytes of a block to fill in each pass."""
    alpha: float | None = None
    """For confidence: fill in bytes whose probability is above this."""
    gamma: float | None = None
    """For entropy: fill in bytes whose entropies sum to at most this, in nats."""

    def _rule(self, decode):
        return decode.unmasking.known(self.unmask, alpha=self.alpha, gamma=self.gamma)

    def _size(self, model):
        trained = getattr(model.config, "block_size", self.block_size)  # the drafter needs a BLT
        if not trained:
            raise ValueError(
                "the model was not trained to fill in masked bytes, as by `bytelax train blt-d`"
            )
        if not 1 <= self.block_size <= trained:
            raise ValueError(
                f"the model was trained on blocks of up to {trained}, got {self.block_size}"
            )
        return self.block_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltD(_Blocks):
    """Block diffusion: the decoder fills blocks of masked bytes, and all are kept. Not lossless."""

    name = "blt-d"

    def _method(self, decode, model):
        drafter = decode.BlockDiffusion(self._size(model), self._rule(decode), latent="ahead")
        return decode.Method(model.target(), drafter, decode.take_all)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BltDV(_Blocks):
    """Block diffusion with verification: the model verifies the blocks that it fills. Lossless.

    A block table, which `bytelax train heads` trains, makes each byte of a block depend on the one
    before it and on what the decoder predicts for it.
    """

    name = "blt-dv"
    unmask: UnmaskOrName = "one-step"
    latent: Literal["reuse", "refresh"] = "reuse"
    """Draft with the latest latent there is (reuse), or first bring it up to date by a second pass
    (refresh)."""
    table: bool | None = None
    """Sample the block from left to right through the model's block table; by default if it has one
    and the rule is one-step."""

    def _drafter(self, decode, model):
        rule, size = self._rule(decode), self._size(model)
        one_step = rule == decode.unmasking.ONE_STEP
        if self.table and not one_step:
            raise ValueError(
                "the block table fills a block in one pass: it needs unmask='one-step'"
            )
        heads = _heads(model)
        if self.table or (self.table is None and one_step and heads.block_table):
            return decode.BlockInOrder(size, latent=self.latent)
        return decode.BlockDiffusion(size, rule, latent=self.latent)


# For a byte transformer, and with heads for a BLT too


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Exit(_Drafting):
    draft_length: int = 4
    exit_layer: int | None = None
    """Number of layers to draft with; by default half of them, or to the nearest exit head."""
    verify_from: Literal["exit", "embedding"] | None = None
    """Continue verification from the states at the exit, or compute all layers again; by default
    the former in float32 and the latter in narrower dtypes, where rounding changes bytes."""

    def _exit(self, decode, model, *, head=None, two_byte=False):
        """Drafts with the exit head nearest to half the depth, or without one at half the depth."""
        half = max(_layers(model) // 2, 1)
        exits, layer = _heads(model).exits, self.exit_layer
        if layer is None:
            layer = min(exits or (half,), key=lambda layer: abs(layer - half))
        head = layer in exits if head is None else head
        return decode.EarlyExit(
            self._length(model),
            layer,
            head=head,
            two_byte=two_byte,
            hand_over=self._hands_over(model),
        )

    def _hands_over(self, model):
        """Whether verification continues from the exit's states; by default only in float32.

        In narrower dtypes these states would give other bytes than plain decoding.
        """
        import jax

        exact = all(leaf.dtype == "float32" for leaf in jax.tree.leaves(model.held))
        if self.verify_from == "exit" and not exact:
            raise ValueError(
                "verify_from 'exit' needs float32 weights: in a narrower dtype it would write "
                "other bytes than plain decoding; load the model so, or verify from the embedding"
            )
        return exact and self.verify_from != "embedding"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyExit(_Exit):
    """Early exit: the first layers draft, and all of them verify. Lossless.

    With `verify_from` "exit", verification continues from the states that drafting computed. They
    differ from those of a wider window by rounding only. With "embedding", all layers are computed
    again, so that the output equals that of plain decoding in the same windows to the last bit.
    """

    name = "early-exit"
    exit_head: bool | None = None
    """Use the exit's own output layer; by default if it has one."""

    def _drafter(self, decode, model):
        return self._exit(decode, model, head=self.exit_head)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Composed(_Exit):
    """Early exit with a two-byte head, so that every pass drafts two bytes. Lossless."""

    name = "composed"

    def _drafter(self, decode, model):
        return self._exit(decode, model, two_byte=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSkip(_Drafting):
    """Layer skipping: the model drafts without some of its blocks, and all verify. Lossless.

    By default every second block is skipped, except the first and the last one.
    """

    name = "layer-skip"
    draft_length: int = 4
    skip_attention: tuple[int, ...] = ()
    """Indices of the blocks whose attention is skipped, from 0."""
    skip_mlp: tuple[int, ...] = ()
    """Indices of the blocks whose SwiGLU is skipped, from 0."""

    def _drafter(self, decode, model):
        attention, mlp = tuple(self.skip_attention), tuple(self.skip_mlp)
        if not attention and not mlp:
            attention = mlp = tuple(range(1, _layers(model) - 1, 2))
        return decode.LayerSkip(self._length(model), attention, mlp)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Medusa(Named):
    """Medusa: multi-byte heads draft all bytes at once, as a chain or a tree. Lossless.

    With `branches` the draft is a tree.
    """

    name = "medusa"
    draft_length: int | None = None
    """Number of heads to draft with; all by default."""
    branches: tuple[int, ...] = ()
    """Number of children of a node at each level; the draft is then a tree."""
    nodes: int = 16
    """Number of nodes of the tree to verify."""

    def _drafter(self, decode, model):
        heads = _heads(model)
        if not self.branches:
            ahead = heads.bytes_ahead
            return decode.MultiByte(ahead if self.draft_length is None else self.draft_length)
        if self.draft_length is not None:
            raise ValueError("a tree takes its depth from branches: no draft_length")
        values = model.config.vocab_size - vocab.OFFSET
        if self.nodes < 1 or not all(1 <= children <= values for children in self.branches):
            raise ValueError(
                f"a node has 1..{values} branches, a tree 1 node or more; got {self.branches}, "
                f"nodes {self.nodes}"
            )
        whole = sum(itertools.accumulate(self.branches, operator.mul))
        return decode.MultiByteTree(tuple(self.branches), min(self.nodes, whole))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoByte(Named):
    """A two-byte-ahead head drafts the byte after the next one. Lossless."""

    name = "two-byte"
    state_layer: int | None = None
    """Depth of the hidden state to read; the last by default."""

    def _drafter(self, decode, model):
        layer = _layers(model) if self.state_layer is None else self.state_layer
        return decode.TwoByte(layer)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eagle(_Drafting):
    """EAGLE: one trained layer drafts from features of the whole model. Lossless.

    With a `beam` above 1 it drafts a tree with `draft_length` levels, each of which expands `beam`
    nodes; `nodes` of the tree are verified.
    """

    name = "eagle"
    draft_length: int = 6
    beam: int = 1
    """Number of nodes to expand at each level; above 1 the draft is a tree."""
    nodes: int = 16
    """Number of nodes of the tree to verify."""
    min_survival: float | None = None
    """End a draft before the first byte that is kept with a probability below this. A trained
    confidence head predicts it before the byte is drawn; without one, the drafter's largest
    probability stands in."""

    def _drafter(self, decode, model):
        depth, beam, nodes = self._length(model), self.beam, self.nodes
        values = model.config.vocab_size - vocab.OFFSET
        if not 1 <= beam <= values or nodes < 1:
            raise ValueError(
                f"beam and nodes must be at least 1, beam at most {values}; got {beam} and {nodes}"
            )
        if beam == 1:
            return decode.DraftLayer(depth, min_survival=self.min_survival)
        return decode.DraftLayer(min(nodes, beam * depth), beam, depth, self.min_survival)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DFlash(Named):
    """DFlash: trained layers on the model's states draft a block in one pass. Lossless."""

    name = "dflash"
    draft_length: int | None = None
    """Number of bytes drafted in each round; by default as many as in a block of training."""
    min_survival: float | None = None
    """End a draft before the first byte that is kept with a probability below this. A trained
    confidence head predicts it before the byte is drawn; without one, the drafter's largest
    probability stands in."""

    def _drafter(self, decode, model):
        length = _heads(model).draft.block_size
        length = length if self.draft_length is None else self.draft_length
        return decode.DraftBlock(length, self.min_survival)
