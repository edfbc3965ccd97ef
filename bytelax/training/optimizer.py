"""AdamW or Muon with a learning-rate schedule and clipping, and gradient accumulation."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key
from optax import contrib

from bytelax.training.configs import OptimizerConfig
from bytelax.training.objectives import Metrics

Params = Any  # nested dict of arrays, with None for parameters that `partition` removed
Trainable = Callable[[tuple[str, ...]], bool]  # takes a path such as ("decoder", "head", "kernel")
Loss = Callable[[Params, Int[Array, "B L"], Key[Array, ""]], tuple[Float[Array, ""], Metrics]]


class Optimizer(NamedTuple):
    """What updates the parameters in a step.

    Attributes:
      transformation: the Optax transformation for the trained parameters.
      rate: its learning rates, which are logged.
      accumulate: number of microbatches that a batch is divided into.
    """

    transformation: optax.GradientTransformation
    rate: optax.Schedule | None = None
    accumulate: int = 1


def from_config(config: OptimizerConfig) -> Optimizer:
    """Builds the optimizer of a config."""
    return Optimizer(transformation(config), learning_rate(config), config.accumulate)


def learning_rate(config: OptimizerConfig, *, peak: float | None = None) -> optax.Schedule:
    """The learning-rate schedule: linear warm-up to the peak, then decay to `final * peak`.

    The first step, step 0, has the learning rate `peak / (warmup + 1)`, because a step with a
    learning rate of 0 would be wasted.

    Args:
      config: the lengths of warm-up and decay.
      peak: peak learning rate; by default that of AdamW.
    """
    peak = config.peak if peak is None else peak
    warmup = config.warmup_steps
    rise = optax.linear_schedule(peak / (warmup + 1), peak, max(warmup, 1))
    if config.cooldown is None:
        decay = max(config.steps - warmup, 1)
        fall = optax.cosine_decay_schedule(peak, decay, config.final)
        return optax.join_schedules([rise, fall], [warmup])
    fall = optax.linear_schedule(peak, config.final * peak, max(config.cooldown, 1))
    level = optax.constant_schedule(peak)
    return optax.join_schedules([rise, level, fall], [warmup, config.steps - config.cooldown])


def decays(params: Params) -> Params:
    """Mask of the parameters that AdamW decays, as a tree of bools."""
    return jax.tree_util.tree_map_with_path(lambda path, _: _names(path)[-1] == "kernel", params)


def hidden_matrices(params: Params) -> Params:
    """The axes of each parameter that Muon orthogonalizes, or None if AdamW updates it.

    Matrices that share one kernel (queries, keys and values; gate and up) are orthogonalized
    separately.
    """

    def axes(path, x):
        names = _names(path)
        if names[-1] != "kernel" or "head" in names or x.ndim < 2:
            return None
        if names[-2] == "out" and x.ndim == 3:  # heads, width of a head, residual stream
            return contrib.MuonDimensionNumbers((0, 1), 2)
        if names[-2] == "query":
            return contrib.MuonDimensionNumbers(0, (1, 2))
        if x.ndim == 4:  # residual stream; key heads and q, k, v in either order; width of a head
            which = 2 if names[-2] == "qkv" else 1
            return contrib.MuonDimensionNumbers(0, tuple({1, 2, 3} - {which}))
        return contrib.MuonDimensionNumbers(0, x.ndim - 1)

    return jax.tree_util.tree_map_with_path(axes, params)


def transformation(config: OptimizerConfig) -> optax.GradientTransformation:
    """Builds the Optax transformation for the trained parameters."""
    clip = optax.identity() if config.clip is None else optax.clip_by_global_norm(config.clip)
    if config.name == "muon":
        return optax.chain(
            clip,
            contrib.muon(
                learning_rate(config, peak=config.muon_peak),
                weight_decay=config.weight_decay,
                adam_learning_rate=learning_rate(config),
                adam_b1=config.beta1,
                adam_b2=config.beta2,
                eps=config.eps,
                muon_weight_dimension_numbers=hidden_matrices,
            ),
        )
    return optax.chain(
        clip,
        optax.adamw(
            learning_rate(config),
            b1=config.beta1,
            b2=config.beta2,
            eps=config.eps,
            weight_decay=config.weight_decay,
            mask=decays,
        ),
    )


def partition(params: Params, trainable: Trainable) -> tuple[Params, Params]:
    """Splits parameters into a trained and a frozen tree, each with `None` for the other's leaves.

    JAX treats `None` as an empty tree, so no gradient is computed and no optimizer state is kept
    for it.
    """

    def select(wanted):
        def keep(path, leaf):
            return leaf if trainable(_names(path)) == wanted else None

        return jax.tree_util.tree_map_with_path(keep, params)

    return select(True), select(False)


def combine(trained: Params, frozen: Params) -> Params:
    """Merges the two trees that `partition` returns."""
    return jax.tree.map(
        lambda a, b: b if a is None else a, trained, frozen, is_leaf=lambda x: x is None
    )


def accumulated_gradient(
    loss: Loss,
    trained: Params,
    ids: Int[Array, "B L"],
    key: Key[Array, ""],
    *,
    microbatches: int,
) -> tuple[Params, Float[Array, ""], Metrics]:
    """Computes the mean gradient and loss over microbatches, and the sum of their metrics.

    Args:
      loss: the loss as a function of the trained parameters.
      trained: the trained parameters, float32.
      ids: the batch. The rows of a microbatch are strided over the batch, so that a batch sharded
        over devices does not move between them.
      key: PRNG key, folded with the index of the microbatch.
      microbatches: number of microbatches; it divides B.

    Returns:
      The gradient, the loss, and the metrics.
    """
    gradient = jax.value_and_grad(loss, has_aux=True)
    if microbatches == 1:
        (value, metrics), grads = gradient(trained, ids, jax.random.fold_in(key, 0))
        return grads, value, metrics
    parts = ids.reshape(ids.shape[0] // microbatches, microbatches, *ids.shape[1:]).swapaxes(0, 1)

    def add(total, part):
        index, ids = part
        (value, metrics), grads = gradient(trained, ids, jax.random.fold_in(key, index))
        return jax.tree.map(jnp.add, total, (grads, value, metrics)), None

    index = jnp.arange(microbatches)
    shapes = jax.eval_shape(gradient, trained, parts[0], key)
    (value, metrics), grads = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    (grads, value, metrics), _ = jax.lax.scan(add, (grads, value, metrics), (index, parts))
    mean = jax.tree.map(lambda x: x / microbatches, grads)
    return mean, value / microbatches, metrics


def _names(path):
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
