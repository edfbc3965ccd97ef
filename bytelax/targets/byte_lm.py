"""The plain byte transformer as a target."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.decode import trees
from bytelax.decode.target import Branching, Rewindable, Text, check_window, take_in
from bytelax.models import kv_cache, ring
from bytelax.models.byte_lm import ByteLM, last_eos_before
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.pytree import pytree, static
from bytelax.models.transformer import LayerRange
from bytelax.targets.module_target import ModuleTarget, Rings, no_states, with_states

# Hidden states of a window: element i is the state after the first `ByteLMTarget.keep[i]` blocks.
Hidden = tuple[Float[Array, "B *W D"], ...]


@pytree
class FirstLayers:
    """The first `layers` blocks of the next window, as computed by a drafter."""

    hidden: Float[Array, "B W D"]  # output of the last of these blocks
    caches: Caches  # of these blocks, with the window in them
    layers: int = static()


@pytree
class ByteLMState:
    """The state of a `ByteLMTarget`: caches addressed by position, and kept hidden states."""

    length: Int[Array, " B"]  # bytes processed
    last_eos: Int[Array, " B"]  # position of the latest EOS; -1 if there is none
    caches: Caches
    windows: Int[Array, " B"]  # passes since the prefill
    hidden: Rings  # of the latest bytes processed, at the depths that are kept
    # What a drafter hands over, so that `extend` need not compute it again. The last bits may
    # differ from those of a pass over the whole window.
    computed: FirstLayers | None = None


class Trial(NamedTuple):
    """A window that was computed and is not kept yet."""

    state: ByteLMState  # as before the window, but with the window in the caches
    last_eos: Int[Array, "B W+1"]
    hidden: Hidden  # of the window


@dataclasses.dataclass(frozen=True)
class ByteLMTarget(ModuleTarget, Rewindable, Branching):
    """Decodes with a byte transformer, as a `Rewindable` and `Branching` target.

    All fields are static.

    Attributes:
      module: the model.
      capacity: maximum text length in bytes that the caches must hold; None takes the length of the
        buffer at the prefill.
      window: W, width of the widest window passed to `extend` after the prefill; None leaves it to
        `Method`.
      prefill_width: number of prompt bytes processed at once.
    """

    module: ByteLM
    capacity: int | None = None
    window: int | None = None
    prefill_width: int = 128
    keep: tuple[int, ...] = ()
    reach: int | None = 1

    model_kind = "a byte transformer"

    @property
    def vocabulary(self) -> vocab.Vocabulary:  # type: ignore[override]
        """Bytes, and EOS if the model knows one."""
        eos = vocab.EOS if self.module.config.eos else None
        return dataclasses.replace(vocab.ALL_BYTES, eos=eos)

    def prefill(self, params, text: Text, state: ByteLMState | None = None) -> ByteLMState:
        """Processes all bytes but the pending one; see `Target.prefill`."""
        rows, longest = text.ids.shape
        width = self.prefill_width
        window = self.window or 1
        sized = dataclasses.replace(self, capacity=self.capacity or longest, window=window)
        wide = dataclasses.replace(sized, window=width)
        if state is None:
            state = sized._empty(params, rows)
        else:
            state = sized._resized(state, max(window, width))
        state = sized._resized(take_in(wide, params, state, text, width=width), window)
        return dataclasses.replace(state, windows=jnp.zeros_like(state.windows))

    def extend(
        self,
        params,
        state: ByteLMState,
        window: Int[Array, "B W"],
        *,
        most: Int[Array, " B"] | None = None,
        parents: Int[Array, "B K"] | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        """Computes next-byte logits after each byte of a window, as `Target.extend`.

        `parents`, as in `Draft.parents`, makes the window a tree.
        """
        check_window(window, self.window)
        model = self.bound(params)
        if parents is None:
            span, last_eos = self.span(state, window)
        else:
            span, last_eos = self._tree_span(state, parents)
        if (computed := state.computed) is None:
            x, caches, layers = model.embed(window), state.caches, LayerRange()
        else:
            layers = LayerRange(first=computed.layers)
            x, caches = computed.hidden, computed.caches + state.caches[computed.layers :]
        hidden, written = model.trunk.states(x, caches, span=span, layers=layers)
        assert written is not None  # as caches were passed
        kept = tuple(hidden[depth - layers.first] for depth in self.keep)
        positions = state.length[:, None] + jnp.arange(window.shape[1])
        rings = with_states(state.hidden, kept, positions)
        state = dataclasses.replace(state, caches=written, hidden=rings, computed=None)
        return model.logits(hidden[-1]), Trial(state, last_eos, kept)

    def span(
        self, state: ByteLMState, window: Int[Array, "B W"]
    ) -> tuple[Span, Int[Array, "B W+1"]]:
        """Returns the span that the bytes after a state attend to, and the positions of EOS.

        The latter are the position of the latest EOS before each byte of the window, and after its
        last.
        """
        c = self.module.config
        positions = state.length[:, None] + jnp.arange(window.shape[1])
        last_eos = last_eos_before(
            window, state.last_eos, mask=c.mask_documents, start=state.length
        )
        first = last_eos[:, :-1] + 1
        return kv_cache.causal_span(positions, window=c.trunk.window, first=first), last_eos

    def along(self, trial: Trial, path: Int[Array, "B W"]) -> Trial:
        """Reorders a trial so that one branch of its tree comes first; see `Branching.along`."""
        start = trial.state.length[:, None]
        places = start + jnp.arange(path.shape[1])
        caches = tuple(c and kv_cache.move(c, start + path, places) for c in trial.state.caches)
        hidden = tuple(jnp.take_along_axis(x, path[..., None], axis=1) for x in trial.hidden)
        rings = with_states(trial.state.hidden, hidden, places)
        state = dataclasses.replace(trial.state, caches=caches, hidden=rings)
        return Trial(state, trial.last_eos, hidden)

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> ByteLMState:
        """Keeps the first `count` window bytes of each row; see `Target.commit`."""
        last_eos = jnp.take_along_axis(trial.last_eos, count[:, None], axis=1)[:, 0]
        return dataclasses.replace(
            trial.state,
            length=trial.state.length + count,
            last_eos=last_eos,
            windows=trial.state.windows + (count > 0),
        )

    def place(self, state: ByteLMState) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
        """Returns the length of a text and its last EOS; see `Rewindable.place`."""
        return state.length, state.last_eos

    def rewind(self, ahead: ByteLMState, place) -> ByteLMState:
        """Returns to a place in the buffers of `ahead`; see `Rewindable.rewind`."""
        length, last_eos = place
        return dataclasses.replace(ahead, length=length, last_eos=last_eos)

    def passes(self, state: ByteLMState) -> dict[str, Int[Array, " B"]]:
        """Returns the number of forward passes; see `Target.passes`."""
        return {"decoder_passes": state.windows}

    def _tree_span(self, state, parents):
        # An EOS ends its row, so no node after an EOS of the tree is ever kept.
        last_eos = jnp.repeat(state.last_eos[:, None], parents.shape[1] + 2, axis=1)
        span = kv_cache.tree_span(
            state.length,
            trees.ancestors(parents),
            window=self.module.config.trunk.window,
            first=last_eos[:, :-1] + 1,
        )
        return span, last_eos

    def _resized(self, state: ByteLMState, width: int) -> ByteLMState:
        """Returns the state in rings for windows of up to `width` bytes."""
        newest = state.length - 1
        slots = self._slots(width, self.module.config.trunk.window)
        kept = ring.latest(newest, self._slots(width, self.reach))
        return dataclasses.replace(
            state,
            hidden=tuple(ring.at(each, kept) for each in state.hidden),
            caches=tuple(c and kv_cache.resize(c, newest, slots) for c in state.caches),
        )

    def _slots(self, width: int, reach: int | None) -> int:
        assert self.capacity is not None and self.window is not None  # `prefill` set them
        # A row that has ended still writes one window beyond the end of its text.
        return kv_cache.ring_slots(
            window=reach,
            width=width,
            capacity=self.capacity + max(self.window, self.prefill_width),
        )

    def _empty(self, params, batch: int) -> ByteLMState:
        assert self.window is not None  # `prefill` set it
        trunk = self.module.config.trunk
        dtype = params["norm"]["scale"].dtype
        width = max(self.window, self.prefill_width)
        return ByteLMState(
            length=jnp.zeros(batch, jnp.int32),
            last_eos=jnp.full(batch, self.module.config.unseen, jnp.int32),
            caches=kv_cache.zeros(
                trunk, batch=batch, slots=self._slots(width, trunk.window), dtype=dtype
            ),
            windows=jnp.zeros(batch, jnp.int32),
            hidden=no_states(
                [trunk.dim] * len(self.keep),
                batch=batch,
                slots=self._slots(width, self.reach),
                dtype=dtype,
            ),
        )
