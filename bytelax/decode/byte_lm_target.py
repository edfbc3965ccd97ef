"""The plain byte transformer as a Target."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode.target import Text, take_in
from bytelax.models import kv_cache
from bytelax.models.byte_lm import ByteLM, last_eos_before
from bytelax.models.kv_cache import Caches
from bytelax.pytree import pytree


@pytree
class ByteLMState:
    length: Int[Array, " B"]  # bytes taken in
    last_eos: Int[Array, " B"]  # position of the latest EOS, -1 where none
    caches: Caches
    windows: Int[Array, " B"]  # passes since the prefill


class Trial(NamedTuple):
    """A window computed and not yet kept."""

    state: ByteLMState  # before it, but with the window in the caches
    last_eos: Int[Array, "B W+1"]


@dataclasses.dataclass(frozen=True)
class ByteLMTarget:
    """A `Rewindable` target. All fields are static shapes.

    Attributes:
      module: the model.
      capacity: longest text, in bytes, that the caches must hold.
      width: W, the widest window of `extend` after the prefill.
      prefill_width: bytes of the prompt taken in at once.
    """

    module: ByteLM
    capacity: int
    width: int = 1
    prefill_width: int = 128

    def prefill(self, params, text: Text) -> ByteLMState:
        width = self.prefill_width
        state = take_in(self, params, self._empty(params, text.ids.shape[0]), text, width=width)
        slots = self._slots(self.width)
        return dataclasses.replace(
            state,
            caches=tuple(kv_cache.resize(cache, state.length - 1, slots) for cache in state.caches),
            windows=jnp.zeros_like(state.windows),
        )

    def extend(
        self,
        params,
        state: ByteLMState,
        window: Int[Array, "B W"],
        *,
        running: Bool[Array, " B"] | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        c = self.module.config
        positions = state.length[:, None] + jnp.arange(window.shape[1])
        last_eos = last_eos_before(
            window, mask=c.mask_documents, state=state.last_eos, start=state.length
        )
        span = kv_cache.causal_span(positions, window=c.trunk.window, first=last_eos[:, :-1] + 1)
        logits, caches = self.module.apply(
            {"params": params}, window, state.caches, span=span, method=ByteLM.window
        )
        return logits, Trial(dataclasses.replace(state, caches=caches), last_eos)

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> ByteLMState:
        last_eos = jnp.take_along_axis(trial.last_eos, count[:, None], axis=1)[:, 0]
        return dataclasses.replace(
            trial.state,
            length=trial.state.length + count,
            last_eos=last_eos,
            windows=trial.state.windows + (count > 0),
        )

    def rewind(self, ahead: ByteLMState, back: ByteLMState) -> ByteLMState:
        return dataclasses.replace(ahead, length=back.length, last_eos=back.last_eos)

    def passes(self, state: ByteLMState) -> dict[str, Int[Array, " B"]]:
        return {"decoder_passes": state.windows}

    def _slots(self, width: int) -> int:
        # A row that stands still writes a window beyond its end.
        return kv_cache.ring_slots(
            window=self.module.config.trunk.window,
            width=width,
            capacity=self.capacity + max(self.width, self.prefill_width),
        )

    def _empty(self, params, batch: int) -> ByteLMState:
        trunk = self.module.config.trunk
        return ByteLMState(
            length=jnp.zeros(batch, jnp.int32),
            last_eos=jnp.full(batch, -1, jnp.int32),
            caches=kv_cache.zeros(
                layers=trunk.layers,
                batch=batch,
                kv_heads=trunk.kv_heads,
                slots=self._slots(max(self.width, self.prefill_width)),
                head_dim=trunk.head_dim,
                dtype=params["head"]["kernel"].dtype,
            ),
            windows=jnp.zeros(batch, jnp.int32),
        )
