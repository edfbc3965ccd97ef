"""What systems need of a model, and the errors if it lacks that."""

from typing import Any, Protocol, runtime_checkable

from bytelax.decode.target import Target
from bytelax.models.configs import ModelConfig


@runtime_checkable
class Model(Protocol):
    """The parts of a `bytelax.Model` that a system is built from."""

    @property
    def config(self) -> ModelConfig:
        """The configuration of the module."""
        ...

    @property
    def held(self) -> Any:
        """The parameters as they lie in memory."""
        ...

    def target(self) -> Target:
        """Returns the target of a `Method`."""
        ...


def checked_length(length: int, model: Model) -> int:
    """Returns a number of bytes to draft; raises ValueError if its window does not fit."""
    limit = model.config.max_bytes - 1
    if not 1 <= length <= limit:
        raise ValueError(f"draft_length must lie in 1..{limit}, got {length}")
    return length


def expect_heads(found: Any, what: str) -> None:
    """Raises ValueError if a model lacks trained heads; `what` names them."""
    if not found:
        raise ValueError(f"the model has no {what}: see `bytelax train heads`")


def check_latent(drafter: Any, *known: str) -> None:
    """Raises ValueError if the field `latent` of a drafter is not one of these words."""
    if drafter.latent not in known:
        raise ValueError(f"latent {drafter.latent!r} is not {' or '.join(known)}")
