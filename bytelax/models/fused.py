"""How a network runs while it decodes: few rows at a time, on weights that may be stored narrow.

With few rows, reading a matrix is what a product costs. So here a product is one operation with
what surrounds it: the norm in front of it, and the gate or the residual behind it. The modules have
the parameters of the plain ones, which the tests compare them with. Whatever depends on the
platform or on how weights are stored is decided in `Fused.dense`.
"""

import dataclasses
import math
from typing import Any, NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from bytelax_kernels import dispatch
from bytelax_kernels.dense import Operands, added, dense, fuses, normalized
from bytelax_kernels.dense.cpu import Panels
from bytelax_kernels.dense.cpu import dense as in_panels
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Float, Int

from bytelax.models import narrow, weight_layouts
from bytelax.models.block import Block, CrossAttention, RematBlock
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution

Module = TypeVar("Module", bound=nn.Module)
_FIELDS = dataclasses.fields(Execution)
# A matrix product of fewer rows than this leaves the matrix units. Reading the weights takes longer
# than multiplying them, so further rows are free.
_LEAST_ROWS = {"tpu": 8, "gpu": 8}


class Norm(NamedTuple):
    """An RMSNorm in front of a product."""

    scale: Float[Array, " D"]
    eps: float


@dataclasses.dataclass(frozen=True)
class Fused(Execution):
    """The execution of programs that decode or score; for inference only.

    Kernels and tables are arrays, or what `laid_out` and int8 models store in their place.
    """

    def product(self, x: Float[Array, "..."], kernel: Any, contracted: int) -> Float[Array, "..."]:
        """As `Execution.product`."""
        return self.dense(x, kernel, contracted=contracted)

    def rows_of(self, table: Any, ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        """As `Execution.rows_of`."""
        return narrow.rows_of(table, ids)

    def dense(
        self,
        x: Float[Array, "..."],
        kernel: Any,
        *,
        contracted: int = 1,
        norm: Norm | None = None,
        onto: Float[Array, "..."] | None = None,
        times: int = 1,
        gated: bool = False,
    ) -> Float[Array, "..."]:
        """Computes `times * onto + norm(x) @ kernel`, or the gated half of a SwiGLU.

        Where there is a kernel for it, a product of few rows is one operation; see
        `bytelax_kernels.dense`.

        Args:
          x: the input.
          kernel: the matrix, as `laid_out` stores it.
          contracted: number of axes of `x` that are contracted with the first ones of `kernel`.
          norm: normalizes the input first.
          onto: what the product is added to; None adds nothing.
          times: how many times it is added.
          gated: whether the first of the other axes of `kernel` is a pair, of whose products
            `silu(gate) * other` remains.
        """
        leading, features = x.shape[: x.ndim - contracted], kernel.shape[contracted:]
        if isinstance(kernel, Panels):
            rows = math.prod(leading)
            out = in_panels(
                x.reshape(rows, -1),
                kernel,
                scale=None if norm is None else norm.scale,
                eps=0.0 if norm is None else norm.eps,
                onto=None if onto is None else onto.reshape(rows, -1),
                times=times,
                gated=gated,
            )
            return out.reshape(*leading, *features[gated:])
        if not narrow.is_narrow(kernel):
            rows = math.prod(leading)
            operands = Operands(
                rows=x.reshape(rows, math.prod(kernel.shape[:contracted])),
                kernel=kernel.reshape(-1, math.prod(features)),
                scale=None if norm is None else norm.scale,
                onto=None if onto is None else onto.reshape(rows, onto.shape[-1]),
            )
            if fuses(operands):
                out = dense(
                    **operands._asdict(),
                    eps=0.0 if norm is None else norm.eps,
                    times=times,
                    gated=gated,
                    precision=self.precision,
                )
                return out.reshape(*leading, *features[gated:])
        if norm is not None:
            x = normalized(x, norm.scale, eps=norm.eps)
        out = self._of_enough_rows(x, kernel, contracted)
        if gated:
            gate, other = (
                jax.lax.index_in_dim(out, index, len(leading), keepdims=False) for index in (0, 1)
            )
            out = nn.silu(gate) * other
        return added(out, onto, times=times)

    def add(
        self, onto: Float[Array, "..."], x: Float[Array, "..."], kernel: Any, **how: Any
    ) -> Float[Array, "..."]:
        """Adds the product to a residual stream, summed over the devices as by `psum`."""
        if self.tensor_axis is None:
            return self.dense(x, kernel, onto=onto, **how)
        times = how.pop("times", 1)
        return added(self.psum(self.dense(x, kernel, **how)), onto, times=times)

    def _of_enough_rows(self, x, kernel, contracted):
        """The product of as many rows as the platform needs to multiply any number alike."""
        leading = x.shape[: x.ndim - contracted]
        rows = math.prod(leading)
        if (more := dispatch.rows_alike(rows) - rows) > 0:
            x = x.reshape(rows, *x.shape[x.ndim - contracted :])
            x = jnp.pad(x, ((0, more), *((0, 0),) * contracted))
            out = self._of_enough_rows(x, kernel, contracted)[:rows]
            return out.reshape(*leading, *out.shape[1:])
        copies = -(-_LEAST_ROWS.get(dispatch.platform(), 1) // max(rows, 1))
        if copies > 1:
            x = jnp.broadcast_to(x, (copies, *x.shape))
        if narrow.is_narrow(kernel):
            out = narrow.product(x, kernel, contracted, precision=self.precision)
        else:
            out = super().product(x, kernel, contracted)
        return out if copies == 1 else out[0]


class FusedBlock(Block):
    """A `Block` in four products and an attention."""

    execution: Fused = Fused()

    def attends(self, x, cache, *, positions, attend):
        attended, cache = attend(self.projections(x, positions), cache)
        out = self._kernel("attention", "out")
        return self.execution.add(self.attention.biased(x), attended, out, contracted=2), cache

    def transforms(self, x):
        gate_up, down = self._kernel("mlp", "gate_up"), self._kernel("mlp", "down")
        hidden = self.execution.dense(x, gate_up, norm=self._norm("mlp_norm"), gated=True)
        return self.execution.add(x, hidden, down)

    def projections(self, x, positions):
        norm = self._norm("attention_norm")
        qkv = self.execution.dense(x, self._kernel("attention", "qkv"), norm=norm)
        return self.attention.projections(qkv, positions)

    def _kernel(self, half, name):
        return self.variables["params"][half][name]["kernel"]

    def _norm(self, name):
        return Norm(self.variables["params"][name]["scale"], self.config.norm_eps)


class FusedCrossAttention(CrossAttention):
    """A `CrossAttention` whose products take in its norms and its residual."""

    execution: Fused = Fused()

    def queries(self, x):
        return self._of_normed(x, "query", "query_norm")

    def keys_values(self, x):
        pair = self._of_normed(x, "key_value", "key_norm")
        return pair[..., 0, :, :], pair[..., 1, :, :]

    def read_one(self, queries, keys, values, patch):
        if not isinstance(self.variables["params"]["out"]["kernel"], Panels):
            return super().read_one(queries, keys, values, patch)
        # The k vectors of a patch are as many positions, one after another.
        k = keys.shape[2]
        first = patch * k
        lines = (
            part.reshape(*part.shape[:1], -1, keys.shape[3] * keys.shape[4])
            for part in (keys, values)
        )
        return verify_attention(
            queries, *lines, first=first, last=first + k - 1, newest=first.max(1) + k - 1
        )

    def residual(self, x, attended):
        out = self.variables["params"]["out"]["kernel"]
        return self.execution.add(x, attended, out, contracted=2, times=2)

    def _of_normed(self, x, name, norm):
        params = self.variables["params"]
        before = Norm(params[norm]["scale"], self.config.norm_eps)
        return self.execution.dense(x, params[name]["kernel"], norm=before)


def block(config: TransformerConfig, execution: Execution) -> Block:
    """A block that runs as `execution` says."""
    if isinstance(execution, Fused):
        return FusedBlock(config, execution)
    return (RematBlock if execution.remat else Block)(config, execution)


def cross_attention(config: TransformerConfig, execution: Execution) -> CrossAttention:
    """A cross-attention that runs as `execution` says."""
    if isinstance(execution, Fused):
        return FusedCrossAttention(config, execution)
    return CrossAttention(config, execution)


def decoding(module: Module) -> Module:
    """The module as programs that decode or score run it, on the same parameters."""
    own = {field.name: getattr(module.execution, field.name) for field in _FIELDS}
    return module.clone(execution=Fused(**own))


def skips_zeros(params: Any) -> bool:
    """Whether products with these parameters, from `laid_out`, leave out rows of zeros."""
    leaves = jax.tree.leaves(params, is_leaf=weight_layouts.is_panels)
    return any(map(weight_layouts.is_panels, leaves))


def laid_out(params: list) -> Any:
    """The parameters as these programs read them; see `weight_layouts`, and `narrow` for tables.

    Args:
      params: a list that holds those of a model, on its devices. Where they are moved to panels,
        the list is emptied; see `weight_layouts.in_panels`.
    """
    if weight_layouts.taken_in_panels(params[0]):
        return narrow.params_as_bits(weight_layouts.in_panels(params))
    return narrow.params_as_bits(weight_layouts.for_products(params[0]))


def as_given(params: Any) -> Any:
    """The parameters again from which `laid_out` has moved these."""
    return weight_layouts.as_arrays(narrow.from_bits(params))
