"""Early exit: the first layers of a byte transformer draft, and all layers verify.

Source: LayerSkip, Elhoushi et al., arXiv 2404.16710, section 4.3.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax import vocab
from bytelax.decode.draft import draw, in_a_row
from bytelax.decode.drafter import Drafter, expect
from bytelax.decode.method import Method
from bytelax.models.configs import ModelConfig
from bytelax.models.execution import Execution
from bytelax.models.layers import LayerNorm, head, only_bytes, with_specials
from bytelax.models.transformer import LayerRange
from bytelax.options import Composed, EarlyExit
from bytelax.systems import two_byte
from bytelax.systems.draft_ahead import draft_ahead
from bytelax.systems.fitting import Model, checked_length, expect_heads
from bytelax.systems.trained import Drafted, Texts, bound, texts_like
from bytelax.targets.byte_lm import ByteLMTarget

# The network


class EarlyExitNetwork(nn.Module):
    """Output layers on the states at some depths.

    Attributes:
      values: number of byte values.
      depths: depth of each output layer.
      execution: how they run.
    """

    values: int
    depths: tuple[int, ...]
    execution: Execution = Execution()

    def setup(self):
        self.heads = {str(depth): _Head(self.values, self.execution) for depth in self.depths}

    def exit(self, depth: int, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        """Computes next-byte logits from the hidden state at a depth."""
        return with_specials(self.heads[str(depth)](hidden))

    def __call__(self, hidden: tuple[Float[Array, "*B D"], ...]) -> list[Float[Array, "*B V"]]:
        """Computes next-byte logits of all output layers, on states at their depths."""
        return [self.exit(depth, x) for depth, x in zip(self.depths, hidden, strict=True)]


class _Head(nn.Module):
    values: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B N"]:
        """Computes float32 logits of byte values from hidden states."""
        normed = LayerNorm(name="norm")(hidden)
        return head(self.values, self.execution, name="out")(normed).astype(jnp.float32)


def network(config: ModelConfig, execution: Execution) -> EarlyExitNetwork:
    """Returns the network of a model."""
    values = config.vocab_size - vocab.OFFSET
    return EarlyExitNetwork(values, config.networks.early_exit.depths, execution)


def example(config: ModelConfig) -> tuple:
    """Returns arguments to initialise the network with."""
    states, *_ = texts_like(config)
    return (tuple(states[depth] for depth in config.networks.early_exit.depths),)


# Its loss


def loss(network: EarlyExitNetwork, texts: Texts) -> list[Drafted]:
    """Returns the predictions of all output layers."""
    found = network(tuple(texts.hidden[depth] for depth in network.depths))
    byte = jnp.arange(1, texts.ids.shape[1])[None]
    return [
        Drafted(f"early_exit_{depth}", 1, logits, byte)
        for depth, logits in zip(network.depths, found, strict=True)
    ]


# The drafter


@dataclasses.dataclass(frozen=True)
class EarlyExitDrafter(Drafter):
    """Drafts byte by byte with the first `layer` blocks of the model (early exit).

    With `two_byte`, a two-byte-ahead head on the same hidden state drafts one more byte, so that
    every pass drafts two.

    Attributes:
      draft_length: K, number of bytes drafted; must be even with `two_byte`.
      layer: number of blocks that draft.
      head: whether the exit head of that depth reads the hidden state, in place of the model's own
        output layer.
      two_byte: whether the two-byte-ahead head of that depth drafts a second byte from each state.
      hand_over: whether verification continues after block `layer`, from the states that drafting
        computed; this needs a window of K + 1. Their last bits may differ from those of a pass over
        all K + 1 bytes.
    """

    draft_length: int
    layer: int
    head: bool = False
    two_byte: bool = False
    hand_over: bool = True

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        layers = target.module.config.trunk.layers
        if not 1 <= self.layer < layers:
            raise ValueError(
                f"the model has {layers} layers: an early exit comes after one of the first "
                f"{layers - 1}, got {self.layer}"
            )
        heads = target.module.config.networks
        where = f"after layer {self.layer}"
        if self.head:
            expect_heads(self.layer in heads.early_exit.depths, f"exit head {where}")
        if self.two_byte:
            expect_heads(self.layer in heads.two_byte.depths, f"two-byte head {where}")
        if self.two_byte and self.draft_length % 2:
            raise ValueError(
                f"a two-byte head drafts pairs: an even length, got {self.draft_length}"
            )
        return target

    def propose(self, inputs, draft_state):
        model = inputs.model

        def drawn(hidden, uniforms):
            if self.head:
                logits = bound(inputs, network, "early_exit").exit(self.layer, hidden)
            else:
                logits = model.logits(hidden)
            first = draw(logits, inputs.sampling, uniforms[:, :1])
            if not self.two_byte:
                return first
            pairs = bound(inputs, two_byte.network, "two_byte")
            after = pairs.after(self.layer, hidden, model.embed(first.ids))
            second = draw(only_bytes(model.logits(after)), inputs.sampling, uniforms[:, 1:])
            return in_a_row(first, second)

        draft = draft_ahead(
            inputs,
            drawn,
            layers=LayerRange(last=self.layer),
            length=self.draft_length,
            stride=1 + self.two_byte,
            hand_over=self.hand_over and inputs.target.window == self.draft_length + 1,
        )
        return draft, draft_state


def build(options: EarlyExit | Composed, model: Model) -> Method:
    """Returns the method that its options describe.

    It drafts with the exit head nearest to half the depth, or without one at half the depth.
    """
    half = max(model.config.depth // 2, 1)
    exits, layer = model.config.networks.early_exit.depths, options.exit_layer
    if layer is None:
        layer = min(exits or (half,), key=lambda layer: abs(layer - half))
    head = None if isinstance(options, Composed) else options.exit_head
    drafter = EarlyExitDrafter(
        checked_length(options.draft_length, model),
        layer,
        head=layer in exits if head is None else head,
        two_byte=isinstance(options, Composed),
        hand_over=_hands_over(options, model),
    )
    return Method(model.target(), drafter)


def _hands_over(options: EarlyExit | Composed, model: Model) -> bool:
    """Whether verification continues from the exit's states; by default only in float32.

    In narrower dtypes these states would give other bytes than plain decoding.
    """
    exact = all(leaf.dtype == "float32" for leaf in jax.tree.leaves(model.held))
    if options.verify_from == "exit" and not exact:
        raise ValueError(
            "verify_from 'exit' needs float32 weights: in a narrower dtype it would write "
            "other bytes than plain decoding; load the model so, or verify from the embedding"
        )
    return exact and options.verify_from != "embedding"
