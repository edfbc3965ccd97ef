"""The Byte Latent Transformer as a target: an exact incremental BLT.

The global transformer only runs for patches that have closed: in chunks of a fixed number of
patches, in a loop until none is left, and not at all if there are none. Whatever depends on how
many bytes of a window are kept is computed for every possible count, and `commit` selects from it.
Everything else is a cache addressed by position.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from bytelax_kernels import cross_attention, dispatch
from bytelax_kernels.append_attention import slots_of
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode.target import Rewindable, Text, check_window, take_in
from bytelax.models import kv_cache, patching, ring, weights
from bytelax.models.blt import BLT, ByteCaches, Context, EncodedWindow, Frontier, Patches
from bytelax.models.kv_cache import Caches, KVCache, WholeKVCache
from bytelax.models.pytree import pytree
from bytelax.targets.module_target import ModuleTarget, Rings, no_states, with_states

_SEVERAL, _MANY = 8, 64  # batch sizes at which some row is likely to close unusually many patches


class Passes(NamedTuple):
    """Number of forward passes, per row."""

    windows: Int[Array, " B"]  # windows kept; each is a pass of entropy model, encoder and decoder
    global_: Int[Array, " B"]  # windows in which the row closed a patch
    chunks: Int[Array, " B"]  # runs of the global transformer, for any row of the batch
    patches: Int[Array, " B"]  # patches closed by bytes that were kept
    batch: Int[Array, " B"]  # windows of the batch, including those in which the row stood still


class Ahead(NamedTuple):
    """The next block: masked cells that the decoder runs in the same pass as a window."""

    start: Int[Array, " B"]  # position of the first cell; -1 before the first window
    patch: Int[Array, " B"]  # the patch whose latent the cells read
    logits: Float[Array, "B C V"]  # each cell predicts its own byte


@pytree
class BLTState:
    """The state of a `BLTTarget`: caches of all stacks, addressed by position."""

    length: Int[Array, " B"]  # bytes processed
    frontier: Frontier
    patcher: Caches
    encoder: Caches
    cross: KVCache  # the encoder's cross-attention keys of every byte
    global_: Caches
    contexts: tuple[Context, ...]  # the decoder's cross-attention keys of the latest patches
    decoder: Caches
    latents: Rings  # of the latest patches, by patch, where a drafter reads them
    hidden: Rings  # of the latest bytes, at the depths that are kept
    ahead: Ahead | None
    passes: Passes


class Trial(NamedTuple):
    """A window that was computed and is not kept yet."""

    state: BLTState  # as before the window, but with the window in the caches
    frontier: Frontier  # [B, W + 1]: entry w is the frontier after w bytes are kept
    ran_global: Bool[Array, " B"]
    chunks: Int[Array, ""]
    hidden: tuple[Float[Array, "B W _"], ...]  # of the window, at the depths that are kept


@dataclasses.dataclass(frozen=True)
class BLTTarget(ModuleTarget, Rewindable):
    """Decodes with a Byte Latent Transformer, as a `Rewindable` target. All fields are static.

    Attributes:
      module: the model.
      capacity: maximum text length in bytes that the caches must hold; None takes the length of the
        buffer at the prefill.
      window: W, width of the widest window passed to `extend` after the prefill; None leaves it to
        `Method`.
      chunk: number of patches per run of the global transformer while decoding. None takes enough
        for most windows of a row; on accelerators more from 8 rows on, and W from 64 rows on. Where
        compiled products leave absent patches out, it takes W.
      prefill_width: number of prompt bytes processed at once.
      prefill_chunk: `chunk` during the prefill.
      ahead: C, number of masked cells that the decoder runs after every window in the same pass,
        once the prefill is over. For block diffusion drafts that are kept whole; see `Ahead`.
    """

    module: BLT
    capacity: int | None = None
    window: int | None = None
    chunk: int | None = None
    prefill_width: int = 128
    prefill_chunk: int = 48
    ahead: int = 0
    keep: tuple[int, ...] = ()
    reach: int | None = 1

    model_kind = "a Byte Latent Transformer"

    def __post_init__(self):
        if self.ahead and self.keep:
            raise ValueError("a target with cells ahead keeps no hidden states for drafters")

    def prefill(self, params, text: Text, state: BLTState | None = None) -> BLTState:
        """Processes all bytes but the pending one; see `Target.prefill`."""
        rows, longest = text.ids.shape
        width, window = self.prefill_width, self.window or 1
        sized = dataclasses.replace(self, capacity=self.capacity or longest, window=window)
        wide = dataclasses.replace(sized, window=width, chunk=self.prefill_chunk, ahead=0)
        if state is None:
            state = sized._empty(params, rows, width)
        else:
            state = wide._resized(state, width)
        state = sized._resized(take_in(wide, params, state, text, width=width), window)
        return dataclasses.replace(
            state,
            ahead=self._nothing_ahead(state.length) if self.ahead else None,
            passes=jax.tree.map(jnp.zeros_like, state.passes),
        )

    def extend(
        self,
        params,
        state: BLTState,
        window: Int[Array, "B W"],
        *,
        most: Int[Array, " B"] | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        """Computes the logits of a window, and of the cells `ahead`; see `Target.extend`.

        Patches that close after the bytes that may be kept are not run.
        """
        check_window(window, self.window)
        c = self.module.config
        model = self.bound(params)
        read, caches = model.read(
            window,
            state.frontier,
            ByteCaches(state.patcher, state.encoder, state.cross),
            start=state.length,
        )
        state = dataclasses.replace(state, **caches._asdict())
        closes = read.closes
        if most is not None:
            closes &= jnp.arange(window.shape[1]) < most[:, None]
        state, chunks = self._close(model, state, read, closes)
        ran_global = closes.any(1)
        if not self.ahead:
            states, decoder = model.decoder.states(
                window,
                read.states,
                state.contexts,
                state.decoder,
                patch=read.patch,
                span=read.span(c.decoder.window),
            )
            assert decoder is not None  # as caches were passed
            latents = tuple(ring.at(each, read.patch) for each in state.latents)
            kept = (*latents, *(states[depth - 1] for depth in self.keep if depth))
            rings = with_states(state.hidden, kept, read.positions)
            state = dataclasses.replace(state, decoder=decoder, hidden=rings)
            trial = Trial(state, read.frontier, ran_global, chunks, kept)
            return model.logits(states[-1]), trial

        width = window.shape[1]
        start = state.length + width
        patch = read.patch[:, -1]
        first = read.frontier.last_eos[:, 1:] + 1
        logits, decoder = model.decoder.extend(
            jnp.pad(window, ((0, 0), (0, self.ahead)), constant_values=vocab.MASK),
            state.decoder,
            contexts=state.contexts,
            start=state.length,
            patch=jnp.concatenate([read.patch, jnp.repeat(patch[:, None], self.ahead, 1)], 1),
            first=jnp.pad(first, ((0, 0), (0, self.ahead)), mode="edge"),
            causal=width,
        )
        ahead = Ahead(start, patch, logits[:, width:])
        state = dataclasses.replace(state, decoder=decoder, ahead=ahead)
        return logits[:, :width], Trial(state, read.frontier, ran_global, chunks, ())

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> BLTState:
        """Keeps the first `count` window bytes of each row; see `Target.commit`."""
        state = trial.state
        ran = count > 0
        patches = trial.frontier.patches
        frontier = jax.tree.map(lambda slots: _choose(slots, count), trial.frontier)
        return dataclasses.replace(
            state,
            length=state.length + count,
            frontier=frontier,
            passes=Passes(
                windows=state.passes.windows + ran,
                global_=state.passes.global_ + (ran & trial.ran_global),
                chunks=state.passes.chunks + trial.chunks,
                patches=state.passes.patches + frontier.patches - patches[:, 0],
                batch=state.passes.batch + 1,
            ),
        )

    def place(self, state: BLTState) -> tuple[Int[Array, " B"], Frontier]:
        """Returns the length of a text and its frontier; see `Rewindable.place`."""
        return state.length, state.frontier

    def rewind(self, ahead: BLTState, place) -> BLTState:
        """Returns to a place in the buffers of `ahead`; see `Rewindable.rewind`."""
        # Fewer bytes than the window holds close fewer patches than the ring of contexts has slots,
        # so running ahead has overwritten nothing that is needed there.
        length, frontier = place
        return dataclasses.replace(ahead, length=length, frontier=frontier)

    def passes(self, state: BLTState) -> dict[str, Int[Array, " B"]]:
        """Returns the forward passes of each network and the patches; see `Target.passes`."""
        made = {
            "decoder_passes": state.passes.windows,
            "encoder_passes": state.passes.windows,
            "global_passes": state.passes.global_,
            "global_chunks": state.passes.chunks,
            "patches": state.passes.patches,
            "batch_windows": state.passes.batch,
        }
        if self.module.config.patching.mode == "entropy":
            made["patcher_passes"] = state.passes.windows
        return made

    def _close(
        self, model: BLT, state: BLTState, read: EncodedWindow, closes: Bool[Array, "B W"]
    ) -> tuple[BLTState, Int[Array, ""]]:
        """Runs the global transformer over the patches that close in a window.

        Returns the state with their keys in the caches, and the number of chunks that were run.
        """
        size = self.chunk
        if size is None and weights.skips_zeros(model.variables["params"]):
            size = self.window or 1  # absent patches cost nothing, and a second run much
        elif size is None:
            size = _derived_chunk(self.window or 1, len(closes))
        most = closes.sum(1).max()
        candidates = patching.candidates(read.frontier, closes, read.positions)

        def unfinished(carry):
            return carry[0] * size < most

        def run_chunk(carry):
            index, caches, contexts, kept = carry
            nth = index * size + jnp.arange(size)
            patches = patching.closing_patches(candidates, nth)
            before = dataclasses.replace(state, global_=caches, contexts=contexts, latents=kept)
            after = self._run_global(model, before, read, patches)
            return index + 1, after.global_, after.contexts, after.latents

        nothing = jnp.zeros((), jnp.int32)
        chunks, caches, contexts, kept = jax.lax.while_loop(
            unfinished, run_chunk, (nothing, state.global_, state.contexts, state.latents)
        )
        state = dataclasses.replace(state, global_=caches, contexts=contexts, latents=kept)
        return state, chunks

    def _run_global(
        self, model: BLT, state: BLTState, read: EncodedWindow, patches: Patches
    ) -> BLTState:
        """Returns the state with these patches in the global caches and the decoder's contexts."""
        latents, caches = model.latents(
            patches, state.cross, state.global_, newest=read.positions[:, -1]
        )
        assert caches is not None  # as caches were passed
        new = model.decoder.context(latents)
        slots = slots_of(patches.index, state.contexts[0].keys.shape[1])
        contexts = tuple(
            Context(*cross_attention.write(*pair, slots))
            for pair in zip(state.contexts, new, strict=True)
        )
        kept = tuple(ring.put(each, latents, patches.index) for each in state.latents)
        return dataclasses.replace(state, global_=caches, contexts=contexts, latents=kept)

    def _empty(self, params, batch: int, width: int) -> BLTState:
        """Returns the state before the first byte, for windows of up to `width` bytes."""
        c = self.module.config
        dtype = params["decoder"]["norm"]["scale"].dtype
        # XLA:CPU would widen all of a bfloat16 array, and narrow it again, to write a few entries.
        written = jnp.float32 if dispatch.platform() == "cpu" else dtype
        assert self.capacity is not None and self.window is not None  # `prefill` set them
        # A row that has ended still writes one window beyond the end of its text.
        capacity = self.capacity + max(width, self.window + self.ahead)

        def caches(config, dtype=dtype, kind=KVCache, width=width):
            slots = kv_cache.ring_slots(window=config.window, width=width, capacity=capacity)
            return kv_cache.zeros(config, batch=batch, slots=slots, dtype=dtype, kind=kind)

        def zeros(*shape, dtype=jnp.int32):
            return jnp.zeros((batch, *shape), dtype)

        patches = max(width, self.window) + 1  # those of a window, and one before
        context = (patches, c.patch_vectors, c.decoder.kv_heads, c.decoder.head_dim)
        return BLTState(
            length=zeros(),
            frontier=patching.beginning(batch, c, dtype),
            patcher=(
                caches(c.patcher.trunk, jnp.float32, WholeKVCache)
                if c.patcher is not None and c.patching.mode == "entropy"
                else ()
            ),
            encoder=caches(c.encoder),
            cross=caches(dataclasses.replace(c.encoder, layers=1, window=None), written)[0],
            global_=caches(c.global_transformer, width=width + 1),
            contexts=tuple(
                Context(zeros(*context, dtype=written), zeros(*context, dtype=written))
                for _ in range(c.decoder_cross_layers)
            ),
            decoder=caches(c.decoder),
            latents=(
                (zeros(patches, c.global_transformer.dim, dtype=dtype),) if 0 in self.keep else ()
            ),
            hidden=no_states(
                [c.decoder.dim if depth else c.global_transformer.dim for depth in self.keep],
                batch=batch,
                slots=kv_cache.ring_slots(window=self.reach, width=width, capacity=capacity),
                dtype=dtype,
            ),
            ahead=None,
            passes=Passes(*(zeros() for _ in Passes._fields)),
        )

    def _nothing_ahead(self, length: Int[Array, " B"]) -> Ahead:
        none = jnp.full_like(length, -1)
        logits = jnp.zeros((*length.shape, self.ahead, self.module.config.vocab_size), jnp.float32)
        return Ahead(none, none, logits)

    def _resized(self, state: BLTState, width: int) -> BLTState:
        """Returns the state in rings for windows of up to `width` bytes, and the cells ahead."""
        c = self.module.config
        newest = state.length - 1

        def needed(window, width):
            return kv_cache.ring_slots(window=window, width=width, capacity=state.cross.slots)

        def resized(caches, config, newest=newest, width=width):
            slots = needed(config.window, width)
            return tuple(kv_cache.resize(cache, newest, slots) for cache in caches)

        kept = ring.latest(newest, needed(self.reach, width))
        return dataclasses.replace(
            state,
            patcher=resized(state.patcher, c.patcher.trunk) if c.patcher and state.patcher else (),
            encoder=resized(state.encoder, c.encoder),
            global_=resized(
                state.global_, c.global_transformer, state.frontier.patches - 1, width + 1
            ),
            decoder=resized(state.decoder, c.decoder, width=width + self.ahead),
            hidden=tuple(ring.at(each, kept) for each in state.hidden),
        )


def _derived_chunk(width: int, batch: int) -> int:
    """Number of patches per run of the global transformer for windows of `width` bytes.

    A window closes about W / 4 patches, and chunks 1.5 times as large rarely need a second run for
    a single row. In a batch the row that closes the most patches decides. An accelerator then takes
    larger chunks, because reading the weights again takes longer than computing the padding of the
    other rows. A CPU computes slowly, and runs small chunks again.
    """
    usual = 1 + (3 * (width - 1) + 7) // 8
    if batch < _SEVERAL or dispatch.platform() == "cpu":
        return usual
    return width if batch >= _MANY else (usual + width) // 2


def _choose(slots: Array, count: Int[Array, " B"]) -> Array:
    """Returns slots[b, count[b]] for each row b."""
    return jax.vmap(lambda row, index: row[index])(slots, count)
