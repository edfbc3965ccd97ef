"""Configuration of a stack of transformer blocks."""

import dataclasses
import math

from bytelax import calculator
from bytelax.filled import UNFILLED, Filled

LONGEST = 1 << 24  # rotary phases are float32, which cannot represent every larger integer


def check_max_bytes(max_bytes: int) -> None:
    """Raises ValueError if `max_bytes` is not a context length that bytelax supports."""
    if not 2 <= max_bytes <= LONGEST:
        raise ValueError(f"max_bytes must lie in 2..{LONGEST}, got {max_bytes}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Sizes of a stack of transformer blocks. A size that is None is replaced by its default.

    Attributes:
      dim: width of the residual stream.
      layers: number of blocks.
      heads: number of query heads; by default `dim // 64`, at least 1.
      kv_heads: number of key and value heads, a divisor of `heads`; by default equal to `heads`.
      head_dim: width of a head, an even number; by default `dim // heads`.
      ffn_dim: hidden width of the SwiGLU; by default 8/3 of `dim`, rounded up to a multiple of 64.
      window: size of the sliding attention window: the number of positions a query attends to, its
        own included. None attends to all earlier positions.
      rope_theta: base of the rotary frequencies.
      norm_eps: added to the mean square in each RMSNorm.
    """

    dim: int
    layers: int
    heads: Filled[int] = UNFILLED
    kv_heads: Filled[int] = UNFILLED
    head_dim: Filled[int] = UNFILLED
    ffn_dim: Filled[int] = UNFILLED
    window: int | None = None
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5

    def __post_init__(self):
        heads = max(self.dim // 64, 1) if self.heads is None else self.heads
        defaults = {
            "heads": heads,
            "kv_heads": heads,
            "head_dim": self.dim // max(heads, 1),
            "ffn_dim": -(-self.dim * 8 // 3 // 64) * 64,
        }
        for field, default in defaults.items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, default)
        for field in ("dim", "layers", *defaults):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}")
        for field in ("rope_theta", "norm_eps"):
            if not 0 < getattr(self, field) < math.inf:
                raise ValueError(f"{field} must be positive, got {getattr(self, field)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads do not divide among {self.kv_heads} kv_heads")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, got {self.head_dim}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"an attention window must be at least 1, got {self.window}")

    def cached_numbers(self, positions: float) -> float:
        """Number of scalars that one pass reads from the KV caches of a row of `positions`."""
        seen = min(positions, self.window or positions)
        return calculator.cached_numbers(self.layers, self.kv_heads, self.head_dim, seen)

    def device_shard(self, devices: int) -> "TransformerConfig":
        """The config of one tensor-parallel shard: heads and hidden units divided by `devices`."""
        shares = {x: getattr(self, x) // devices for x in ("heads", "kv_heads", "ffn_dim")}
        return dataclasses.replace(self, **shares)
