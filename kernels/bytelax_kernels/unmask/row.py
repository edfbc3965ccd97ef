"""The computation of `unmask` on one row of cells, shared by the TPU and the GPU kernel.

Nothing is sorted: the cells before a given cell are found by comparing all pairs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from bytelax_kernels.unmask.rule import Rule


class Form(NamedTuple):
    """Operations between arrays [cells, N] and "numbers", the kernel's layout of one per cell.

    Attributes:
      iota: `(shape, axis)` -> the float32 index along an axis.
      wide: `(numbers, N)` -> [cells, N], the number of a cell in every column of its row.
      across: `(numbers)` -> [cells, cells], the number of cell j in column j of every row.
      largest: [cells, N] -> numbers, the maximum over the columns.
      total: [cells, N] -> numbers, the sum over the columns.
    """

    iota: Callable[[tuple[int, int], int], Any]
    wide: Callable[[Any, int], Any]
    across: Callable[[Any], Any]
    largest: Callable[[Any], Any]
    total: Callable[[Any], Any]


def fill(form: Form, logits, masked, drawn, rule: Rule):
    """Computes chosen and drawn of `Unmasked`, each as a float32 number per cell.

    Args:
      form: the kernel's layout.
      logits: f32[cells, V].
      masked: numbers, greater than 0 where a cell is masked.
      drawn: ids as float32 numbers; None uses the most likely ids.
      rule: which cells to fill in.
    """
    index = form.iota(logits.shape, 1)
    own = _log_softmax(form, logits)
    probs = jnp.exp(own)
    if drawn is None:
        drawn = _likeliest(form, logits, index)
    return _chosen(form, own, probs, masked, rule), drawn


def _log_softmax(form, logits):
    columns = logits.shape[1]
    shifted = logits - form.wide(form.largest(logits), columns)
    return shifted - form.wide(jnp.log(form.total(jnp.exp(shifted))), columns)


def _likeliest(form, numbers, index):
    """The index of the largest number in each row, and the lowest one among ties."""
    columns = numbers.shape[1]
    top = numbers == form.wide(form.largest(numbers), columns)
    return -form.largest(jnp.where(top, -index, -float(columns)))


def _chosen(form, own, probs, masked, rule):
    if rule.kind == "all":
        return masked
    if rule.kind == "confidence":
        doubt = -form.largest(probs)
    else:
        doubt = form.total(jnp.where(own > -jnp.inf, -probs * own, 0.0))
        doubt = jnp.maximum(doubt, 0.0)
    doubt = jnp.where(masked > 0, doubt, jnp.inf)
    other = form.across(doubt)
    cells = other.shape[1]
    this, that = form.iota((cells, cells), 0), form.iota((cells, cells), 1)
    mine = form.wide(doubt, cells)
    before = (other < mine) | ((other == mine) & (that < this))
    first = form.largest(jnp.where(before, 1.0, 0.0)) == 0
    if rule.kind == "confidence":
        within = -doubt > rule.bound
    else:
        counted = before if rule.kind == "entropy-but-one" else before | (that == this)
        within = form.total(jnp.where(counted, other, 0.0)) <= rule.bound
    return jnp.where((masked > 0) & (first | within), 1.0, 0.0)
