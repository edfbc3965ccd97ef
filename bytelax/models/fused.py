"""How a network runs while it decodes: few rows at a time, on weights that may be stored narrow.

With few rows, reading a matrix is what a product costs. So here a product is one operation with
what surrounds it: the norm in front of it, and the gate or the residual behind it. The modules are
the plain ones. What depends on the platform or on how weights are stored is decided here; the tests
compare it with `Execution`.
"""

import dataclasses
import math
from typing import Any, TypeVar

import flax.linen as nn
import jax.numpy as jnp
from bytelax_kernels import dispatch
from bytelax_kernels.dense import added, cpu, dense
from jaxtyping import Array, Float, Int

from bytelax.models import narrow, weights
from bytelax.models.execution import Execution, Norm

Module = TypeVar("Module", bound=nn.Module)
_FIELDS = dataclasses.fields(Execution)
# A matrix product of fewer rows than this leaves the matrix units. Reading the weights takes longer
# than multiplying them, so further rows are free.
_LEAST_ROWS = {"tpu": 8, "gpu": 8}


@dataclasses.dataclass(frozen=True)
class Fused(Execution):
    """The execution of programs that decode or score; for inference only.

    Kernels and tables are arrays, or what `weights.Weights` and int8 models store in their place.
    """

    def rows_of(self, table: Any, ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        """As `Execution.rows_of`."""
        return narrow.rows_of(table, ids)

    def product(
        self,
        x: Float[Array, "..."],
        kernel: Any,
        contracted: int,
        *,
        norm: Norm | None = None,
        gated: bool = False,
        onto: Float[Array, "..."] | None = None,
        times: int = 1,
    ) -> Float[Array, "..."]:
        """As `Execution.product`; one operation of few rows where there is a kernel for it."""
        if onto is not None and self.tensor_axis is not None:  # the sum over devices comes between
            out = self.product(x, kernel, contracted, norm=norm, gated=gated)
            return added(self.psum(out), onto, times=times)
        if not weights.is_panels(kernel):
            how: dict[str, Any] = {"norm": norm, "gated": gated, "onto": onto, "times": times}
            return super().product(x, kernel, contracted, **how)
        leading, features = x.shape[: x.ndim - contracted], kernel.features
        count = math.prod(leading)
        rows = x.reshape(count, math.prod(kernel.shape[:contracted]))
        around: dict[str, Any] = {
            "scale": None if norm is None else norm.scale,
            "onto": None if onto is None else onto.reshape(count, onto.shape[-1]),
        }
        form: dict[str, Any] = {"eps": 0.0 if norm is None else norm.eps, "times": times}
        out = dense(rows, kernel, gated=gated, precision=self.precision, **around, **form)
        return out.reshape(*leading, *features[gated:])

    def multiply(self, x: Float[Array, "..."], kernel: Any, contracted: int) -> Float[Array, "..."]:
        """As `Execution.multiply`, of as many rows as multiply any number alike."""
        leading = x.shape[: x.ndim - contracted]
        rows = math.prod(leading)
        if (more := dispatch.rows_alike(rows) - rows) > 0:
            x = x.reshape(rows, *x.shape[x.ndim - contracted :])
            x = jnp.pad(x, ((0, more), *((0, 0),) * contracted))
            out = self.multiply(x, kernel, contracted)[:rows]
            return out.reshape(*leading, *out.shape[1:])
        copies = -(-_LEAST_ROWS.get(dispatch.platform(), 1) // max(rows, 1))
        if copies > 1:
            x = jnp.broadcast_to(x, (copies, *x.shape))
        if narrow.is_narrow(kernel):
            out = narrow.product(x, kernel, contracted, precision=self.precision)
        else:
            out = super().multiply(x, kernel, contracted)
        return out if copies == 1 else out[0]

    def compiled(self, kernel: Any) -> bool:
        """As `Execution.compiled`."""
        return isinstance(kernel, cpu.Panels)


def decoding(module: Module) -> Module:
    """The module as programs that decode or score run it, on the same parameters."""
    own = {field.name: vars(module.execution)[field.name] for field in _FIELDS}
    return module.clone(execution=Fused(**own | {"remat": False}))
