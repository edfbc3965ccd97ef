"""The Byte Latent Transformer as a Target: an exact incremental BLT.

Bytes inside a patch never touch the global transformer. It runs only for patches that closed, in
chunks of one fixed capacity, looped until none is left and skipped when there are none. Whatever
depends on how many bytes of a window are kept is computed for every possible count and chosen by
`commit`; everything else is a cache addressed by position.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode.target import Text, check_window, take_in
from bytelax.decode.targets import local_decoder
from bytelax.models import kv_cache
from bytelax.models.blt import BLT, ByteCaches, Context, Frontier, Patches, Window
from bytelax.models.blt import patches as patches_lib
from bytelax.models.kv_cache import Caches, KVCache, WholeKVCache
from bytelax.pytree import pytree


class Passes(NamedTuple):
    """Number of forward passes, per row."""

    windows: Int[Array, " B"]  # patcher, encoder and decoder: one each a window
    global_: Int[Array, " B"]  # windows in which the row closed a patch
    chunks: Int[Array, " B"]  # runs of the global transformer that some row of the batch needed
    patches: Int[Array, " B"]  # patches closed by bytes that were kept
    batch: Int[Array, " B"]  # windows of the batch, also those in which the row stood still


class Ahead(NamedTuple):
    """The next block: masked cells that the decoder runs in the same pass as a window."""

    start: Int[Array, " B"]  # position of the first cell; -1 where there was no window yet
    patch: Int[Array, " B"]  # the patch whose latent the cells read
    on_boundary: Bool[Array, " B"]  # whether the first cell starts a patch
    logits: Float[Array, "B C V"]  # for the cells' own bytes


@pytree
class BLTState:
    length: Int[Array, " B"]  # bytes taken in
    frontier: Frontier
    patcher: Caches
    encoder: Caches
    cross: KVCache  # the encoder's cross-attention keys of every byte
    global_: Caches
    contexts: tuple[Context, ...]  # the decoder's cross-attention keys of the latest patches
    decoder: Caches
    ahead: Ahead | None
    passes: Passes


class Trial(NamedTuple):
    """A window computed and not yet kept."""

    state: BLTState  # before it, but with the window in the caches
    frontier: Frontier  # [B, W + 1]: slot w is the frontier once w bytes are kept
    ran_global: Bool[Array, " B"]
    chunks: Int[Array, ""]
    waits: Bool[Array, " B"]  # rows that closed a patch while the global transformer did not run


@dataclasses.dataclass(frozen=True)
class BLTTarget:
    """A `Rewindable` target. All fields are static shapes.

    Attributes:
      module: the model.
      capacity: longest text, in bytes, that the caches must hold; None is the buffer's at the
        prefill.
      window: W, the widest window of `extend` after the prefill; None leaves it to `Method`.
      chunk: patches in one run of the global transformer while decoding. None: a window of W bytes
        closes about W / 4 patches, and chunks of half as many again rarely need a second run.
      prefill_width: bytes of the prompt taken in at once.
      prefill_chunk: as `chunk`, in the prefill.
      ahead: C masked cells that the decoder runs behind every window after the prefill, in the same
        pass, for a drafter of blocks that are kept whole; see `Ahead`.
      open_patch: what those cells read when the window ends within a patch: the latent of the
        "latest" patch that closed, or of the open one as if it were "truncated" there, which takes
        a run of the global transformer.
      synchronous: the share of the running rows that must have closed a patch before the global
        transformer runs for them together; those that have wait. 0: none waits, 1: each for all.
    """

    module: BLT
    capacity: int | None = None
    window: int | None = None
    chunk: int | None = None
    prefill_width: int = 128
    prefill_chunk: int = 48
    ahead: int = 0
    open_patch: Literal["latest", "truncated"] = "latest"
    synchronous: float = 0.0

    model_kind = "a Byte Latent Transformer"

    def __post_init__(self):
        if not 0 <= self.synchronous <= 1:
            raise ValueError(f"synchronous is a share of the rows, 0..1, got {self.synchronous}")

    @property
    def vocab_size(self) -> int:
        return self.module.config.vocab_size

    @property
    def max_bytes(self) -> int:
        return self.module.config.max_bytes

    def prefill(self, params, text: Text) -> BLTState:
        rows, longest = text.ids.shape
        width = self.prefill_width
        sized = dataclasses.replace(
            self, capacity=self.capacity or longest, window=self.window or 1
        )
        wide = dataclasses.replace(
            sized, window=width, chunk=self.prefill_chunk, ahead=0, synchronous=0
        )
        empty = sized._empty(params, rows, width)
        return sized._shrunk(take_in(wide, params, empty, text, width=width))

    def extend(
        self,
        params,
        state: BLTState,
        window: Int[Array, "B W"],
        *,
        running: Bool[Array, " B"] | None = None,
    ) -> tuple[Float[Array, "B W V"], Trial]:
        check_window(window, self.window)
        c = self.module.config
        model = self.module.bind({"params": params})
        read, caches = model.read(
            window,
            state.frontier,
            ByteCaches(state.patcher, state.encoder, state.cross),
            start=state.length,
        )
        state = dataclasses.replace(state, **caches._asdict())
        needed = read.closes if running is None else read.closes & running[:, None]
        waits = self._waiting(needed.any(1), running)
        state, chunks = self._close(model, state, read, needed & ~waits[:, None])
        ran_global = read.closes.any(1)
        if not self.ahead:
            logits, decoder = model.decoder(
                window,
                read.states,
                state.contexts,
                state.decoder,
                patch=read.patch,
                span=read.span(c.decoder.window),
            )
            state = dataclasses.replace(state, decoder=decoder)
            return logits, Trial(state, read.frontier, ran_global, chunks, waits)

        width = window.shape[1]
        start = state.length + width
        is_open = read.frontier.open_patch.start[:, -1] < start
        patch = read.patch[:, -1]
        if self.open_patch == "truncated":
            # Where the latent of the whole patch will overwrite it.
            truncated = patches_lib.truncated_patch(read.frontier, read.positions)
            state = self._run_global(model, state, read, truncated)
            patch, ran_global = patch + is_open, ran_global | is_open
        first = read.frontier.last_eos[:, 1:] + 1
        logits, decoder = local_decoder.run(
            model,
            jnp.pad(window, ((0, 0), (0, self.ahead)), constant_values=vocab.MASK),
            state.decoder,
            contexts=state.contexts,
            start=state.length,
            patch=jnp.concatenate([read.patch, jnp.repeat(patch[:, None], self.ahead, 1)], 1),
            first=jnp.pad(first, ((0, 0), (0, self.ahead)), mode="edge"),
            causal=width,
        )
        ahead = Ahead(start, patch, ~is_open, logits[:, width:])
        state = dataclasses.replace(state, decoder=decoder, ahead=ahead)
        return logits[:, :width], Trial(state, read.frontier, ran_global, chunks, waits)

    def commit(self, trial: Trial, count: Int[Array, " B"]) -> BLTState:
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

    def waits(self, trial: Trial) -> Bool[Array, " B"]:
        return trial.waits

    def rewind(self, ahead: BLTState, back: BLTState) -> BLTState:
        # Fewer bytes than the width close fewer patches than there are contexts in the ring.
        return dataclasses.replace(ahead, length=back.length, frontier=back.frontier)

    def passes(self, state: BLTState) -> dict[str, Int[Array, " B"]]:
        patcher = state.passes.windows * (self.module.config.patching.mode == "entropy")
        return {
            "decoder_passes": state.passes.windows,
            "encoder_passes": state.passes.windows,
            "global_passes": state.passes.global_,
            "global_chunks": state.passes.chunks,
            "patcher_passes": patcher,
            "patches": state.passes.patches,
            "batch_windows": state.passes.batch,
        }

    def _waiting(
        self, closed: Bool[Array, " B"], running: Bool[Array, " B"] | None
    ) -> Bool[Array, " B"]:
        """Which of the rows that closed a patch wait for others to do so."""
        if not self.synchronous:
            return jnp.zeros_like(closed)
        all_rows = len(closed) if running is None else running.sum()
        return closed & (closed.sum() < self.synchronous * all_rows)

    def _close(
        self, model: BLT, state: BLTState, read: Window, closes: Bool[Array, "B W"]
    ) -> tuple[BLTState, Int[Array, ""]]:
        """Runs the global transformer over the patches that close in a window.

        Returns the state with their keys in the caches, and the number of chunks run.
        """
        size = 1 + (3 * ((self.window or 1) - 1) + 7) // 8 if self.chunk is None else self.chunk
        most = closes.sum(1).max()

        def unfinished(carry):
            return carry[0] * size < most

        def run_chunk(carry):
            index, caches, contexts = carry
            nth = index * size + jnp.arange(size)
            patches = patches_lib.closing_patches(read.frontier, closes, read.positions, nth)
            before = dataclasses.replace(state, global_=caches, contexts=contexts)
            after = self._run_global(model, before, read, patches)
            return index + 1, after.global_, after.contexts

        chunks, caches, contexts = jax.lax.while_loop(
            unfinished, run_chunk, (jnp.zeros((), jnp.int32), state.global_, state.contexts)
        )
        return dataclasses.replace(state, global_=caches, contexts=contexts), chunks

    def _run_global(self, model: BLT, state: BLTState, read: Window, patches: Patches) -> BLTState:
        """The state with these patches in the global caches and the decoder's contexts."""
        latents, caches = model.latents(
            patches, state.cross, state.global_, newest=read.positions[:, -1]
        )
        row = jnp.arange(latents.shape[0])[:, None]
        contexts = tuple(
            _write_context(ring, context, row, patches.index)
            for ring, context in zip(state.contexts, model.decoder.context(latents), strict=True)
        )
        return dataclasses.replace(state, global_=caches, contexts=contexts)

    def _empty(self, params, batch: int, width: int) -> BLTState:
        """The state before the first byte, for windows of up to `width` bytes."""
        c = self.module.config
        dtype = params["decoder"]["head"]["kernel"].dtype
        # A row that stands still writes a window beyond its end.
        capacity = self.capacity + max(width, self.window + self.ahead)

        def caches(config, dtype=dtype, kind=KVCache):
            return kv_cache.zeros(
                kind=kind,
                layers=config.layers,
                batch=batch,
                kv_heads=config.kv_heads,
                slots=kv_cache.ring_slots(window=config.window, width=width, capacity=capacity),
                head_dim=config.head_dim,
                dtype=dtype,
            )

        def zeros(*shape, dtype=jnp.int32):
            return jnp.zeros((batch, *shape), dtype)

        ring = max(width, self.window) + 2  # a window's, the one before it, a truncated one
        context = (ring, c.patch_vectors, c.decoder.kv_heads, c.decoder.head_dim)
        return BLTState(
            length=zeros(),
            frontier=patches_lib.beginning(batch, c, dtype),
            patcher=(
                caches(c.patcher.trunk, jnp.float32, WholeKVCache)
                if c.patching.mode == "entropy"
                else ()
            ),
            encoder=caches(c.encoder),
            cross=caches(dataclasses.replace(c.encoder, layers=1, window=None))[0],
            global_=caches(c.global_transformer),
            contexts=tuple(
                Context(zeros(*context, dtype=dtype), zeros(*context, dtype=dtype))
                for _ in range(c.decoder_cross_layers)
            ),
            decoder=caches(c.decoder),
            ahead=None,
            passes=Passes(*(zeros() for _ in Passes._fields)),
        )

    def _nothing_ahead(self, length: Int[Array, " B"]) -> Ahead:
        none = jnp.full_like(length, -1)
        logits = jnp.zeros((*length.shape, self.ahead, self.module.config.vocab_size), jnp.float32)
        return Ahead(none, none, none > 0, logits)

    def _shrunk(self, state: BLTState) -> BLTState:
        """After the prefill: rings no larger than decoding needs, passes counted from here."""
        c = self.module.config
        newest = state.length - 1

        def shrink(caches, config, newest=newest, width=self.window):
            slots = kv_cache.ring_slots(
                window=config.window, width=width, capacity=state.cross.keys.shape[2]
            )
            return tuple(kv_cache.resize(cache, newest, slots) for cache in caches)

        return dataclasses.replace(
            state,
            patcher=shrink(state.patcher, c.patcher.trunk) if state.patcher else (),
            encoder=shrink(state.encoder, c.encoder),
            global_=shrink(
                state.global_, c.global_transformer, state.frontier.patches - 1, self.window + 1
            ),
            decoder=shrink(state.decoder, c.decoder, width=self.window + self.ahead),
            ahead=self._nothing_ahead(state.length) if self.ahead else None,
            passes=jax.tree.map(jnp.zeros_like, state.passes),
        )


def _write_context(ring: Context, context: Context, row, patch) -> Context:
    slots = ring.keys.shape[1]
    slot = jnp.where(patch < 0, slots, patch % slots)  # out of bounds is dropped
    return Context(
        *(old.at[row, slot].set(new, mode="drop") for old, new in zip(ring, context, strict=True))
    )


def _choose(slots: Array, count: Int[Array, " B"]) -> Array:
    """slots[b, count[b]]."""
    return jax.vmap(lambda row, index: row[index])(slots, count)
