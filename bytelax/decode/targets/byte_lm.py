"""The plain byte transformer as a Target."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode import trees
from bytelax.decode.target import Text, check_window, take_in
from bytelax.models import kv_cache
from bytelax.models.byte_lm import ByteLM, last_eos_before
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.transformer import Part
from bytelax.pytree import pytree, static

# Hidden states of some layers: element i behind the first `ByteLMTarget.keep[i]` blocks.
Hidden = tuple[Float[Array, "B *W D"], ...]


@pytree
class ByteLMState:
    length: Int[Array, " B"]  # bytes taken in
    last_eos: Int[Array, " B"]  # position of the latest EOS, -1 where none
    caches: Caches
    windows: Int[Array, " B"]  # passes since the prefill
    hidden: Hidden  # of the latest byte taken in


class Trial(NamedTuple):
    """A window computed and not yet kept."""

    state: ByteLMState  # before it, but with the window in the caches
    last_eos: Int[Array, "B W+1"]
    hidden: Hidden  # of the window


@pytree
class FirstLayers:
    """What a drafter has computed of a window: its first `layers` blocks."""

    hidden: Float[Array, "B W D"]  # behind them
    caches: Caches  # theirs, with the window in
    layers: int = static()


@dataclasses.dataclass(frozen=True)
class ByteLMTarget:
    """A `Rewindable` and `Branching` target. All fields are static shapes.

    Attributes:
      module: the model.
      capacity: longest text, in bytes, that the caches must hold; None is the buffer's at the
        prefill.
      window: W, the widest window of `extend` after the prefill; None leaves it to `Method`.
      prefill_width: bytes of the prompt taken in at once.
      keep: depths, in blocks, at which hidden states are kept for a drafter.
    """

    module: ByteLM
    capacity: int | None = None
    window: int | None = None
    prefill_width: int = 128
    keep: tuple[int, ...] = ()

    model_kind = "a byte transformer"

    @property
    def vocab_size(self) -> int:
        return self.module.config.vocab_size

    @property
    def max_bytes(self) -> int:
        return self.module.config.max_bytes

    def keeping(self, *depths: int) -> "ByteLMTarget":
        """The target that keeps the hidden states at these depths too."""
        return dataclasses.replace(self, keep=tuple(sorted({*self.keep, *depths})))

    def prefill(self, params, text: Text) -> ByteLMState:
        rows, longest = text.ids.shape
        width = self.prefill_width
        sized = dataclasses.replace(
            self, capacity=self.capacity or longest, window=self.window or 1
        )
        wide = dataclasses.replace(sized, window=width)
        state = take_in(wide, params, sized._empty(params, rows), text, width=width)
        slots = sized._slots(sized.window)
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
        parents: Int[Array, "B K"] | None = None,
        computed: FirstLayers | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        """As `Target.extend`.

        Args:
          params, state, window, running: as there.
          parents: the window is a tree.
          computed: its first layers, which are not computed again. They may hold other last bits
            than a window of this width would.
        """
        check_window(window, self.window)
        model = self.module.bind({"params": params})
        if parents is None:
            span, last_eos = self.span(state, window)
        else:
            span, last_eos = self._tree_span(state, parents)
        if computed is None:
            x, caches, part = model.embed(window), state.caches, Part()
        else:
            part = Part(first=computed.layers)
            x, caches = computed.hidden, computed.caches + state.caches[computed.layers :]
        hidden, caches = model.trunk.states(x, caches, span=span, part=part)
        kept = tuple(hidden[depth - part.first] for depth in self.keep)
        trial = Trial(dataclasses.replace(state, caches=caches), last_eos, kept)
        return model.logits(hidden[-1]), trial

    def span(
        self, state: ByteLMState, window: Int[Array, "B W"]
    ) -> tuple[Span, Int[Array, "B W+1"]]:
        """What the bytes behind a state see, and the latest EOS before each and after the last."""
        c = self.module.config
        positions = state.length[:, None] + jnp.arange(window.shape[1])
        last_eos = last_eos_before(
            window, mask=c.mask_documents, state=state.last_eos, start=state.length
        )
        first = last_eos[:, :-1] + 1
        return kv_cache.causal_span(positions, window=c.trunk.window, first=first), last_eos

    def along(self, trial: Trial, path: Int[Array, "B W"]) -> Trial:
        start = trial.state.length[:, None]
        places = start + jnp.arange(path.shape[1])
        caches = tuple(kv_cache.move(c, start + path, places) for c in trial.state.caches)
        return Trial(
            dataclasses.replace(trial.state, caches=caches),
            trial.last_eos,
            tuple(jnp.take_along_axis(x, path[..., None], axis=1) for x in trial.hidden),
        )

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> ByteLMState:
        last_eos = jnp.take_along_axis(trial.last_eos, count[:, None], axis=1)[:, 0]
        newest = jnp.maximum(count - 1, 0)[:, None, None]

        def latest(window, before):
            kept = jnp.take_along_axis(window, newest, axis=1)[:, 0]
            return jnp.where((count > 0)[:, None], kept, before)

        return dataclasses.replace(
            trial.state,
            length=trial.state.length + count,
            last_eos=last_eos,
            windows=trial.state.windows + (count > 0),
            hidden=jax.tree.map(latest, trial.hidden, trial.state.hidden),
        )

    def rewind(self, ahead: ByteLMState, back: ByteLMState) -> ByteLMState:
        return dataclasses.replace(
            ahead, length=back.length, last_eos=back.last_eos, hidden=back.hidden
        )

    def passes(self, state: ByteLMState) -> dict[str, Int[Array, " B"]]:
        return {"decoder_passes": state.windows}

    def _tree_span(self, state, parents):
        # An EOS ends its row, so no node that is kept stands behind one.
        last_eos = jnp.repeat(state.last_eos[:, None], parents.shape[1] + 2, axis=1)
        span = kv_cache.tree_span(
            state.length,
            trees.ancestors(parents),
            window=self.module.config.trunk.window,
            first=last_eos[:, :-1] + 1,
        )
        return span, last_eos

    def _slots(self, width: int) -> int:
        # A row that stands still writes a window beyond its end.
        return kv_cache.ring_slots(
            window=self.module.config.trunk.window,
            width=width,
            capacity=self.capacity + max(self.window, self.prefill_width),
        )

    def _empty(self, params, batch: int) -> ByteLMState:
        trunk = self.module.config.trunk
        dtype = params["head"]["kernel"].dtype
        return ByteLMState(
            length=jnp.zeros(batch, jnp.int32),
            last_eos=jnp.full(batch, -1, jnp.int32),
            caches=kv_cache.zeros(
                layers=trunk.layers,
                batch=batch,
                kv_heads=trunk.kv_heads,
                slots=self._slots(max(self.window, self.prefill_width)),
                head_dim=trunk.head_dim,
                dtype=dtype,
            ),
            windows=jnp.zeros(batch, jnp.int32),
            hidden=tuple(jnp.zeros((batch, trunk.dim), dtype) for _ in self.keep),
        )
