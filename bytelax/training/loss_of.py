"""The losses of prediction heads, by name."""

from typing import Literal

LossOf = Literal["kl", "total-variation", "cross-entropy", "lk"]
