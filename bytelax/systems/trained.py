"""What systems train for a frozen model: parameters at `params["heads"]`, by name of the system.

Such a system has three more functions in its file. `network(config, execution)` returns the Flax
module, `example(config)` arguments to initialise it with, and `loss(network, texts)` what it
predicted of whole texts: `training/head_objective.py` compares that with the model.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bytelax.decode.drafter import DraftInput
from bytelax.models import layers
from bytelax.models.configs import ModelConfig
from bytelax.models.execution import Execution

Network = TypeVar("Network", bound=nn.Module)


class Texts(NamedTuple):
    """Whole texts, and what the model computed from them."""

    model: Any  # the module, bound to its parameters
    ids: Int[Array, "B L"]
    hidden: tuple[Float[Array, "B S _"], ...]  # of the first S = L - 1 bytes; see `BLT.states`
    embedded: Float[Array, "B S D"]  # of the last S bytes
    closes: Bool[Array, "B S"] | None  # ends of patches
    max_patches: int | None
    own_outputs: int  # steps that a network is unrolled for on its own outputs
    blocks: int  # blocks of each text to draft
    key: Key[Array, ""]

    def starts(self, size: int) -> Int[Array, "B M"]:
        """Draws distinct positions of bytes, at least 1, after which `size` more follow."""
        length = self.ids.shape[1] - 1
        if length <= size:
            raise ValueError(
                f"a text of {length} bytes has no block of {size}: take longer windows"
            )
        uniforms = jax.random.uniform(self.key, (self.ids.shape[0], length - size))
        return 1 + jax.lax.top_k(uniforms, min(self.blocks, length - size))[1]


class Drafted(NamedTuple):
    """Predictions of one network at one position of a draft."""

    name: str
    place: int  # in the draft, from 1
    logits: Float[Array, "B N V"]
    byte: Int[Array, "#B N"]  # positions of the bytes that it predicts, 1..S


class Term(NamedTuple):
    """A part of a loss that judges no drafted byte."""

    name: str
    values: Float[Array, "B N"]
    there: Bool[Array, "B N"]
    weight: float = 1.0


def systems(config: ModelConfig) -> dict[str, Any]:
    """Returns the modules of the systems that a model has trained networks of, by name."""
    return {x: importlib.import_module(f"bytelax.systems.{x}") for x in config.networks.present}


def init(config: ModelConfig, key: Key[Array, ""]) -> dict:
    """Initialises the parameters of all networks, `params["heads"]`."""
    return _variables(config, key)["params"]


@functools.lru_cache(maxsize=32)  # a load calls it more than once, and tracing takes time
def shapes(config: ModelConfig) -> dict:
    """Returns the shapes of all parameters, as a tree of `jax.ShapeDtypeStruct`."""
    key = jax.eval_shape(jax.random.key, 0)
    return jax.eval_shape(functools.partial(_variables, config), key)["params"]


@functools.lru_cache(maxsize=32)
def logical_axes(config: ModelConfig) -> dict:
    """Returns the logical axes of all parameters; see `pods.sharding`."""
    key = jax.eval_shape(jax.random.key, 0)
    variables = jax.eval_shape(functools.partial(_variables, config), key)
    return {name: layers.axes_of(variables["each"][name]) for name in variables["each"]}


def _variables(config, key):
    each = {}
    for name, system in systems(config).items():
        key, own = jax.random.split(key)
        each[name] = system.network(config, Execution()).init(own, *system.example(config))
    return {"each": each, "params": {name: found["params"] for name, found in each.items()}}


def losses(
    config: ModelConfig, execution: Execution, params: dict, texts: Texts
) -> list[Drafted | Term]:
    """Returns what all networks, with these `params["heads"]`, predicted of whole texts."""
    found = []
    for name, system in systems(config).items():
        network: nn.Module = system.network(config, execution)
        found += system.loss(network.bind({"params": params[name]}), texts)
    return found


def bound(inputs: DraftInput, network: Callable[..., Network], system: str) -> Network:
    """Returns a system's network for drafting, bound to the parameters trained for the target.

    Args:
      inputs: input of the drafter.
      network: the function of this name in the system's file.
      system: name of the system.
    """
    model = inputs.model
    params = inputs.target_params["heads"][system]
    return network(model.config, model.execution).bind({"params": params})


def texts_like(config: ModelConfig) -> tuple[tuple[Array, ...], Array, Array]:
    """Returns states, embeddings and ids of a text of zeros, to initialise networks with."""
    states = tuple(jnp.zeros((1, 8, dim)) for dim in config.state_dims)
    return states, jnp.zeros((1, 8, config.trunk.dim)), jnp.zeros((1, 8), jnp.int32)
