"""A two-byte-ahead head drafts the byte after the next one."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode.draft import draft_of, draw
from bytelax.decode.drafter import Drafter, expect
from bytelax.decode.method import Method
from bytelax.models.configs import ModelConfig
from bytelax.models.execution import Execution
from bytelax.models.layers import only_bytes, project
from bytelax.options import TwoByte
from bytelax.systems.fitting import Model, expect_heads
from bytelax.systems.trained import Drafted, Texts, bound, texts_like
from bytelax.targets.byte_lm import ByteLMTarget
from bytelax.targets.module_target import kept_state

# The network


class TwoByteNetwork(nn.Module):
    """Heads that predict the final hidden state at the next byte.

    Attributes:
      dim: width of the states.
      depths: depth of the state that each head reads.
      execution: how the heads run.
    """

    dim: int
    depths: tuple[int, ...]
    execution: Execution = Execution()

    def setup(self):
        self.heads = {str(depth): _Head(self.dim, self.execution) for depth in self.depths}

    def after(
        self, depth: int, hidden: Float[Array, "*B D"], embedded: Float[Array, "*B D"]
    ) -> Float[Array, "*B D"]:
        """Predicts the final hidden state at the next byte; the trunk's output layer reads it.

        Args:
          depth: depth of the hidden states.
          hidden: hidden states.
          embedded: the trunk's embedding of the next byte.
        """
        return self.heads[str(depth)](hidden, embedded)

    def __call__(
        self, hidden: tuple[Float[Array, "*B D"], ...], embedded: Float[Array, "*B D"]
    ) -> list[Float[Array, "*B D"]]:
        """Runs all heads, on states at their depths."""
        pairs = zip(self.depths, hidden, strict=True)
        return [self.after(depth, states, embedded) for depth, states in pairs]


class _Head(nn.Module):
    dim: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "*B D"], embedded: Float[Array, "*B D"]
    ) -> Float[Array, "*B D"]:
        """Projects a hidden state and the embedding of the next byte to one vector."""
        both = jnp.concatenate([hidden, embedded], axis=-1)
        return project(self.dim, self.execution, name="project")(both)


def network(config: ModelConfig, execution: Execution) -> TwoByteNetwork:
    """Returns the network of a model."""
    return TwoByteNetwork(config.trunk.dim, config.networks.two_byte.depths, execution)


def example(config: ModelConfig) -> tuple:
    """Returns arguments to initialise the network with."""
    states, embedded, _ = texts_like(config)
    return tuple(states[depth] for depth in config.networks.two_byte.depths), embedded


# Its loss


def loss(network: TwoByteNetwork, texts: Texts) -> list[Drafted]:
    """Returns the predictions of all heads."""
    hidden = tuple(texts.hidden[depth][:, :-1] for depth in network.depths)
    found = network(hidden, texts.embedded[:, :-1])
    byte = jnp.arange(2, texts.ids.shape[1])[None]
    return [
        Drafted(f"two_byte_{depth}", 1, texts.model.logits(after), byte)
        for depth, after in zip(network.depths, found, strict=True)
    ]


# The drafter


@dataclasses.dataclass(frozen=True)
class TwoByteDrafter(Drafter):
    """Drafts one byte with a two-byte-ahead head.

    The head reads a hidden state of the byte before the pending one, and the pending byte.

    Attributes:
      depth: number of blocks after which the hidden state is read: all of them, or fewer.
    """

    depth: int

    draft_length = 1

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        known = self.depth in target.module.config.networks.two_byte.depths
        expect_heads(known, f"two-byte head after layer {self.depth}")
        return target.keeping(self.depth)

    def propose(self, inputs, draft_state):
        model = inputs.model
        hidden = kept_state(inputs, self.depth, inputs.state.length[:, None] - 1)
        after = bound(inputs, network, "two_byte").after(
            self.depth, hidden, model.embed(inputs.text.pending)
        )
        drawn = draw(only_bytes(model.logits(after)), inputs.sampling, inputs.uniforms(1))
        return draft_of(drawn), draft_state


def build(options: TwoByte, model: Model) -> Method:
    """Returns the method that its options describe."""
    layer = options.state_layer
    return Method(model.target(), TwoByteDrafter(model.config.depth if layer is None else layer))
