"""What targets that decode with a Flax module have in common."""

from typing import Any

from bytelax.models import fused


class OfModule:
    """Base of targets with a field `module`, whose config tells the sizes of the model."""

    module: Any

    def bound(self, params: Any) -> Any:
        """Returns the module bound to its parameters, as it runs while it decodes."""
        return fused.decoding(self.module).bind({"params": params})

    @property
    def vocab_size(self) -> int:
        """Number of ids that the model predicts."""
        return self.module.config.vocab_size

    def agreed(self, values: Any) -> Any:
        """Implements `Sharing.agreed`."""
        return self.module.execution.agreed(values)

    @property
    def max_bytes(self) -> int:
        """Maximum length of a text, BOS included."""
        return self.module.config.max_bytes
