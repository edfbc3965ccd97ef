"""AdamW or Muon with warm-up, cosine decay and clipping; gradients summed over microbatches."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key
from optax import contrib

from bytelax.training.objectives import Metrics

Params = Any  # nested dict of arrays; `None` where a parameter was taken out by `partition`
Trainable = Callable[[tuple[str, ...]], bool]  # of a path ("decoder", "head", "kernel")
Loss = Callable[[Params, Int[Array, "B L"], Key[Array, ""]], tuple[Float[Array, ""], Metrics]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW (arXiv 1711.05101) as BLT and Fast BLT (arXiv 2605.08044, section 4) use it, or Muon.

    Only matrices that multiply activations (`kernel`) decay: a norm's scale has no business at
    zero, and a rare row of an embedding would decay between two visits.

    Attributes:
      name: "adamw", or "muon" (Jordan et al., 2024), which makes the update of every hidden matrix
        orthogonal, and leaves embeddings, norms and the head to AdamW. An update of Muon has the
        same size however small its gradient is, so that the encoder and the global transformer of
        a small BLT learn from the first step on (docs/training.md).
      steps: length of the run, and so of the cosine.
      peak: highest learning rate of AdamW, reached after the warm-up.
      muon_peak: the same of Muon, whose updates have a spectral norm of about 1.
      warmup: steps of linear warm-up from 0.
      final: the learning rate at the end, as a fraction of the peak.
      cooldown: steps at the end in which the rate falls linearly, after a constant one; None falls
        along a cosine all the time. A run with a cooldown may go on with another number of steps.
      beta1, beta2, eps: of Adam.
      weight_decay: multiplied by the learning rate.
      clip: largest global norm of the gradient; None does not clip.
      accumulate: microbatches that a step's batch is cut into, one after the other.
    """

    name: Literal["adamw", "muon"] = "adamw"
    steps: int = 1000
    peak: float = 4e-4
    muon_peak: float = 0.02
    warmup: int = 100
    final: float = 0.0
    cooldown: int | None = None
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float | None = 1.0
    accumulate: int = 1

    def __post_init__(self):
        if self.name not in ("adamw", "muon"):
            raise ValueError(f"the optimizer {self.name!r} is not adamw or muon")
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if not 0 <= self.warmup <= self.steps:
            raise ValueError(f"a warm-up of {self.warmup} does not lie in {self.steps} steps")
        if self.cooldown is not None and not 0 <= self.cooldown <= self.steps - self.warmup:
            raise ValueError(
                f"a cooldown of {self.cooldown} does not fit in the {self.steps} steps behind a "
                f"warm-up of {self.warmup}"
            )
        for field in ("peak", "muon_peak"):
            if getattr(self, field) <= 0:
                raise ValueError(f"{field} must be positive, got {getattr(self, field)}")
        if self.accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, got {self.accumulate}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be positive or None, got {self.clip}")


def learning_rate(config: OptimizerConfig, *, peak: float | None = None) -> optax.Schedule:
    """Step, from 0, to learning rate: linear to the peak, then down to `final * peak`.

    The first step has the rate `peak / (warmup + 1)`, not 0, which would waste it.

    Args:
      config: the length of warm-up and decay.
      peak: by default that of AdamW.
    """
    peak = config.peak if peak is None else peak
    rise = optax.linear_schedule(peak / (config.warmup + 1), peak, max(config.warmup, 1))
    if config.cooldown is None:
        decay = max(config.steps - config.warmup, 1)
        fall = optax.cosine_decay_schedule(peak, decay, config.final)
        return optax.join_schedules([rise, fall], [config.warmup])
    fall = optax.linear_schedule(peak, config.final * peak, max(config.cooldown, 1))
    level = optax.constant_schedule(peak)
    return optax.join_schedules(
        [rise, level, fall], [config.warmup, config.steps - config.cooldown]
    )


def decays(params: Params) -> Params:
    """Whether each parameter has weight decay, as a tree of bools."""
    return jax.tree_util.tree_map_with_path(lambda path, _: _last(path) == "kernel", params)


def hidden_matrices(params: Params) -> Params:
    """The axes that Muon orthogonalises, of each parameter; None where AdamW has the update.

    Matrices that share one kernel (queries, keys and values; gate and up) are taken one by one.
    """

    def axes(path, x):
        names = [jax.tree_util.keystr((key,), simple=True) for key in path]
        if names[-1] != "kernel" or "head" in names or x.ndim < 2:
            return None
        if names[-2] == "out" and x.ndim == 3:  # heads and their widths to the residual stream
            return contrib.MuonDimensionNumbers((0, 1), 2)
        if names[-2] == "query":
            return contrib.MuonDimensionNumbers(0, (1, 2))
        if x.ndim == 4:  # width, key heads, which of q, k and v, width of a head
            which = 2 if names[-2] == "qkv" else 1
            return contrib.MuonDimensionNumbers(0, tuple({1, 2, 3} - {which}))
        return contrib.MuonDimensionNumbers(0, x.ndim - 1)

    return jax.tree_util.tree_map_with_path(axes, params)


def transformation(config: OptimizerConfig) -> optax.GradientTransformation:
    """The optimizer; it takes the tree of the trained parameters only."""
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
