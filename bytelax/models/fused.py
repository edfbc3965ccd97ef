"""How a network runs while it decodes: few rows at a time, on weights that may be stored narrow.

With few rows, reading a matrix is what a product costs. So here a product is one operation with
the norm before it and the gate or the residual after it. The classes
below run the parameters of the plain ones that they extend, which the tests compare them with.
What depends on the platform or on how weights are stored is decided here.
"""

import dataclasses
import math
from typing import Any, TypeVar

import flax.linen as nn
import jax.numpy as jnp
from bytelax_kernels import dispatch
from bytelax_kernels.dense import Panels, added, cpu, dense
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Float, Int

from bytelax.models import narrow
from bytelax.models.block import Block, CrossAttention, SwiGLU
from bytelax.models.execution import Execution, Layer
from bytelax.models.layers import Dense, RMSNorm

Module = TypeVar("Module", bound=nn.Module)
# Products with fewer rows than this do not use the matrix units. Reading the weights takes longer
# than multiplying them, so further rows are free.
_LEAST_ROWS = {"tpu": 8, "gpu": 8}


@dataclasses.dataclass(frozen=True)
class Fused(Execution):
    """The execution of programs that decode or score; for inference only.

    Kernels and tables are arrays, or what `weights.Weights` and int8 models store in their place.
    """

    def layer(self, kind: type[Layer]) -> type[Layer]:
        """As `Execution.layer`: the class with the kernels, if there is one."""
        return _FUSED.get(kind, kind)

    def logits(self, norm: Any, head: Any, hidden: Array) -> Float[Array, "B W V"]:
        """As `Execution.logits`."""
        return product(head, hidden, norm=norm).astype(jnp.float32)

    def rows_of(self, table: Any, ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        """As `Execution.rows_of`."""
        return narrow.rows_of(table, ids)

    def product(self, x: Float[Array, "..."], kernel: Any, contracted: int) -> Float[Array, "..."]:
        """As `Execution.product`, padded so that a row does not depend on the number of rows."""
        if isinstance(kernel, Panels):
            return _product(x, kernel, precision=self.precision)
        leading = x.shape[: x.ndim - contracted]
        rows = math.prod(leading)
        if (more := dispatch.rows_alike(rows) - rows) > 0:
            x = x.reshape(rows, *x.shape[x.ndim - contracted :])
            x = jnp.pad(x, ((0, more), *((0, 0),) * contracted))
            out = self.product(x, kernel, contracted)[:rows]
            return out.reshape(*leading, *out.shape[1:])
        copies = -(-_LEAST_ROWS.get(dispatch.platform(), 1) // max(rows, 1))
        if copies > 1:
            x = jnp.broadcast_to(x, (copies, *x.shape))
        if narrow.is_narrow(kernel):
            out = narrow.product(x, kernel, contracted, precision=self.precision)
        else:
            out = super().product(x, kernel, contracted)
        return out if copies == 1 else out[0]


def _product(x, kernel, *, onto=None, gated=False, **how):
    """The product of the kernels with panels."""
    leading = x.shape[: x.ndim - kernel.contracted]
    count = math.prod(leading)
    rows = x.reshape(count, math.prod(kernel.shape[: kernel.contracted]))
    onto = None if onto is None else onto.reshape(count, onto.shape[-1])
    out = dense(rows, kernel, onto=onto, gated=gated, **how)
    return out.reshape(*leading, *kernel.features[gated:])


def product(
    layer: Dense,
    x: Float[Array, "..."],
    *,
    norm: RMSNorm | None = None,
    gated: bool = False,
    onto: Float[Array, "..."] | None = None,
    times: int = 1,
) -> Float[Array, "..."]:
    """Computes `times * onto + layer(norm(x))`, or the gated half of a SwiGLU.

    In panels it is one operation; see `bytelax_kernels.dense.dense`. The product is summed as by
    `Execution.psum` before it is added to the residual stream `onto`.
    """
    kernel: Any = layer.get_variable("params", "kernel")
    execution = layer.execution
    if isinstance(kernel, Panels) and (onto is None or execution.tensor_axis is None):
        return _product(
            x, kernel, onto=onto, gated=gated, times=times, precision=execution.precision,
            scale=None if norm is None else norm.get_variable("params", "scale"),
            eps=0.0 if norm is None else norm.eps,
        )  # fmt: skip
    out = layer(x if norm is None else norm(x))
    if gated:
        out = nn.silu(out[..., 0, :]) * out[..., 1, :]
    return out if onto is None else added(execution.psum(out), onto, times=times)


class FusedSwiGLU(SwiGLU):
    """A `SwiGLU` whose gate is a part of its first product."""

    def __call__(self, x):
        return self.execution.psum(self.down(product(self.gate_up, x, gated=True)))


class FusedBlock(Block):
    """A `Block` whose norms, gate and residuals are parts of its products."""

    def attends(self, x, cache, *, positions, attend):
        """As `Block.attends`."""
        attended, cache = attend(self.projections(x, positions), cache)
        if self.config.biases == "all":
            return x + self.attention.projected(attended), cache
        return product(self.attention.out, attended, onto=x), cache

    def transforms(self, x):
        """As `Block.transforms`."""
        hidden = product(self.mlp.gate_up, x, norm=self.mlp_norm, gated=True)
        return product(self.mlp.down, hidden, onto=x)

    def projections(self, x, positions):
        """As `Block.projections`."""
        qkv = product(self.attention.qkv, x, norm=self.attention_norm)
        return self.attention.projections(qkv, positions)


class FusedCrossAttention(CrossAttention):
    """A `CrossAttention` whose norms and residual are parts of its products."""

    def queries(self, x):
        """As `CrossAttention.queries`."""
        return product(self.query, x, norm=self.query_norm)

    def keys_values(self, x):
        """As `CrossAttention.keys_values`."""
        pair = product(self.key_value, x, norm=self.key_norm)
        return pair[..., 0, :, :], pair[..., 1, :, :]

    def read_one(self, queries, keys, values, patch):
        """As `CrossAttention.read_one`; on a processor by its kernel."""
        if not isinstance(self.out.get_variable("params", "kernel"), cpu.Panels):
            return super().read_one(queries, keys, values, patch)
        # The k vectors of a patch are as many positions, one after another.
        k, first = keys.shape[2], patch * keys.shape[2]
        keys, values = (x.reshape(*x.shape[:1], -1, math.prod(x.shape[3:])) for x in (keys, values))
        last = first + k - 1
        return verify_attention(queries, keys, values, first=first, last=last, newest=last.max(1))

    def residual(self, x, attended):
        """As `CrossAttention.residual`."""
        return product(self.out, attended, onto=x, times=2)


_FUSED: dict[type, Any] = {
    SwiGLU: FusedSwiGLU,
    Block: FusedBlock,
    CrossAttention: FusedCrossAttention,
}


def decoding(module: Module) -> Module:
    """The module as programs that decode or score run it, on the same parameters."""
    return module.clone(execution=Fused(**vars(module.execution) | {"remat": False}))
