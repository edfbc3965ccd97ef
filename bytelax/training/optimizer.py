"""AdamW with warm-up, cosine decay and clipping, and gradients summed over microbatches."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from bytelax.training.objectives import Metrics

Params = Any  # nested dict of arrays; `None` where a parameter was taken out by `partition`
Trainable = Callable[[tuple[str, ...]], bool]  # of a path ("decoder", "head", "kernel")
Loss = Callable[[Params, Int[Array, "B L"], Key[Array, ""]], tuple[Float[Array, ""], Metrics]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW (arXiv 1711.05101) as BLT and Fast BLT (arXiv 2605.08044, section 4) use it.

    Only matrices that multiply activations (`kernel`) decay: a norm's scale has no business at
    zero, and a rare row of an embedding would decay between two visits.

    Attributes:
      steps: length of the run, and so of the cosine.
      peak: highest learning rate, reached after the warm-up.
      warmup: steps of linear warm-up from 0.
      final: the learning rate at the end, as a fraction of the peak.
      beta1, beta2, eps: of Adam.
      weight_decay: multiplied by the learning rate.
      clip: largest global norm of the gradient; None does not clip.
      accumulate: microbatches that a step's batch is cut into, one after the other.
    """

    steps: int = 1000
    peak: float = 4e-4
    warmup: int = 100
    final: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float | None = 1.0
    accumulate: int = 1

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if not 0 <= self.warmup <= self.steps:
            raise ValueError(f"a warm-up of {self.warmup} does not lie in {self.steps} steps")
        if self.peak <= 0:
            raise ValueError(f"the peak learning rate must be positive, got {self.peak}")
        if self.accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, got {self.accumulate}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be positive or None, got {self.clip}")


def learning_rate(config: OptimizerConfig) -> optax.Schedule:
    """Step, from 0, to learning rate: linear to the peak, then a cosine to `final * peak`.

    The first step has the rate `peak / (warmup + 1)`, not 0, which would waste it.
    """
    decay = max(config.steps - config.warmup, 1)
    cosine = optax.cosine_decay_schedule(config.peak, decay, config.final)
    start = config.peak / (config.warmup + 1)
    rise = optax.linear_schedule(start, config.peak, max(config.warmup, 1))
    return optax.join_schedules([rise, cosine], [config.warmup])


def decays(params: Params) -> Params:
    """Whether each parameter has weight decay, as a tree of bools."""
    return jax.tree_util.tree_map_with_path(lambda path, _: _last(path) == "kernel", params)


def adamw(config: OptimizerConfig) -> optax.GradientTransformation:
    """The optimizer; it takes the tree of the trained parameters only."""
    clip = optax.identity() if config.clip is None else optax.clip_by_global_norm(config.clip)
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
    """Two trees of the same form, the trained and the frozen parameters, with `None` for the rest.

    `None` is an empty tree to JAX: no gradient is taken and no optimizer state kept for it.
    """

    def select(wanted):
        def keep(path, leaf):
            names = tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
            return leaf if trainable(names) == wanted else None

        return jax.tree_util.tree_map_with_path(keep, params)

    return select(True), select(False)


def combine(trained: Params, frozen: Params) -> Params:
    """The inverse of `partition`."""
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
    """Mean gradient and loss over the microbatches of a batch, and the sum of their metrics.

    Args:
      loss: of the trained parameters.
      trained: float32.
      ids: the batch. Every microbatch takes rows from each part of it, so that a batch split over
        devices is not moved between them.
      key: folded with the number of the microbatch.
      microbatches: a divisor of B.
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


def _last(path):
    return jax.tree_util.keystr(path[-1:], simple=True)
